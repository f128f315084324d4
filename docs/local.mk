# The papers of the project, installed below share/doc/loong-flow.
dist_doc_DATA = README.md LICENSE NEWS CONTRIBUTING.md SECURITY.md
