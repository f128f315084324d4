# The book and the papers of the project, installed below share/doc/loong-flow as they lie here.
# Links to folders of the source lead nowhere there.
dist_doc_DATA = README.md LICENSE NEWS CONTRIBUTING.md SECURITY.md
bookdir = $(docdir)/docs
dist_book_DATA = docs/README.md docs/guide.md docs/tutorial-pretrain.md docs/tutorial-finetune.md docs/tutorial-pictures.md \
  docs/tutorial-preferences.md docs/tutorial-evaluate.md docs/cluster.md docs/post-training.md \
  docs/sweeps.md docs/files.md docs/architecture.md docs/GLOSSARY.md docs/FAQ.md
