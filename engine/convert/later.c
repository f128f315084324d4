/* SPDX-License-Identifier: Apache-2.0
 *
 * Models that transformers 5.23 has a class for and lf-convert does not read, by what each needs
 * that is not there. An entry of families_*.c takes its model_type out of here; the test that holds
 * both to the whole list of transformers is tests/golden/families/classes_test.c. */
#include "engine/convert/hf.h"
#include "engine/convert/hf_priv.h"

const struct lf_hf_later lf_hf_laters[] = {
    /* What the engine computes, under other names. */
    {"deepseek_vl lighton_ocr qianfan_ocr shieldgemma2",
     "a table of its keys and tensors, whose encoder and decoder are known"},
    {"cosmos3_omni", "a table of its files, which also hold a part that makes pictures"},

    /* Scans in place of attention, or among it. */
    {"mamba falcon_mamba", "selective state spaces (Mamba) in place of attention"},
    {"jamba zamba", "selective state spaces (Mamba) mixed with attention"},
    {"zamba2", "state space layers (SSD) mixed with attention whose blocks layers share"},
    {"nemotron_h_omni", "state space layers (SSD) mixed with attention, and an encoder of sound"},
    {"minicpm_ocr minicpmv4_6 minicpmv4_7",
     "a scan with a gated delta rule mixed with attention, and an encoder that merges by windows"},
    {"bailing_hybrid", "a scan with a delta rule whose gates are per channel"},
    {"glm5_next", "a scan with a delta rule whose gates are per channel, and hyper-connections"},
    {"qwen4_exp qwen4_exp_text",
     "a scan with a gated delta rule, and sparse attention by an indexer"},
    {"recurrent_gemma", "gated linear recurrences (RG-LRU) mixed with attention"},
    {"rwkv", "the recurrence of RWKV in place of attention"},
    {"xlstm", "memories of matrices (mLSTM) in place of attention"},
    {"lfm2_vl", "a table of its keys and tensors, above the encoder SigLIP 2"},
    {"lfm3 lfm3_vl", "a gate on what attention returns, among short convolutions"},
    {"zaya", "attention with convolutions of queries and keys and values of the token before"},

    /* Attention of another kind. */
    {"mimo_v2_flash", "sinks in attention, and values of another size than keys"},
    {"laguna", "a gate on what attention returns"},
    {"beam", "a gate on what attention returns, and a sum of layers weighted by depth"},
    {"muse_glimmer muse_spark", "a gate on what attention returns, and norms without weights"},
    {"step3p7", "a gate on what attention returns, and other numbers of heads in windowed layers"},
    {"deepseek_v32 glm_moe_dsa dots3_note dots3_note_text",
     "latent attention that an indexer makes sparse"},
    {"axk2", "latent attention that an indexer makes sparse, and norms with gates"},
    {"mistral_large4", "sparse attention by an indexer"},
    {"minimax_m3_vl minimax_m3_vl_text", "attention to blocks that an indexer chooses"},
    {"deepseek_v4", "attention to compressed keys by an indexer, and hyper-connections"},
    {"hy_v4", "latent attention that an indexer makes sparse, and hyper-connections"},
    {"inkling2 inkling2_text inkling_mm_model inkling_text",
     "attention with relative positions from queries, and short convolutions"},
    {"longcat_flash", "layers of two latent attentions, and experts that pass their input on"},
    {"diffllama", "differences of two attentions"},
    {"doge", "a mask that depends on values, and experts looked up by keys"},
    {"jetmoe", "experts in attention"},
    {"cpmant", "relative position bias between segments"},
    {"xlnet", "relative positions in two streams of attention"},
    {"reformer", "attention by hashing and reversible layers"},
    {"dbrx", "a limit on queries, keys and values (clip_qkv)"},
    {"persimmon", "layer norms of queries and keys"},
    {"fuyu",
     "layer norms of queries and keys, and pixels that enter the decoder without an encoder"},

    /* Norms, positions, experts, and what lies between the layers. */
    {"axk1", "a norm of what the experts return"},
    {"bitnet", "norms within attention and the feed-forward part, and weights of three values"},
    {"cohere2_moe", "experts in a parallel block, whose sum with shared ones may be an average"},
    {"gpt_neox_japanese", "a bias of attention in the last layer alone"},
    {"kolibri1", "a router that selects by logits and biases and weighs by sigmoids"},
    {"phimoe", "the routing of SparseMixer"},
    {"ctrl xglm", "positions that are sines"},
    {"xlm", "positions that are sines or learned, and embeddings of languages"},
    {"gemma3n", "what sees and hears beside Gemma 3n's text model"},
    {"gemma4 gemma4_unified", "what sees and hears beside Gemma 4's text model"},
    {"gemma4_assistant gemma4_unified_assistant", "keys and values of another model"},
    {"hrm_text", "layers that run several times"},
    {"blt", "bytes in patches of varying length, and attention across them"},
    {"modernbert-decoder", "a transform before the head"},
    {"diffusion_gemma", "generation of blocks by diffusion"},

    /* Encoders of texts. */
    {"bert-generation rembert roc_bert", "an encoder of the BERT kind as a decoder"},
    {"big_bird", "an encoder of the BERT kind as a decoder, and block-sparse attention"},
    {"roformer", "an encoder of the BERT kind as a decoder, with rotated queries and keys"},
    {"xmod", "an encoder of the BERT kind as a decoder, with adapters of languages"},

    /* Encoder-decoders. */
    {"blenderbot blenderbot-small mbart mvp plbart",
     "a table of its keys and tensors, whose encoder and decoder are known (BART)"},
    {"fsmt m2m_100 marian pegasus", "positions that are sines, in an encoder and a decoder"},
    {"pegasus_x", "positions that are sines, and attention by blocks beside global tokens"},
    {"bigbird_pegasus", "an encoder with block-sparse attention"},
    {"led", "an encoder with windows and tokens that see all"},
    {"longt5", "an encoder with windows, or with tokens that stand for blocks"},
    {"nllb-moe switch_transformers", "experts in an encoder and a decoder"},
    {"t5gemma t5gemma2", "an encoder of Gemma's layers, to which those of a decoder attend"},
    {"encoder-decoder", "an encoder and a decoder of two families"},
    {"prophetnet", "streams of n-grams in a decoder that attends to an encoder"},
    {"florence2 pix2struct pp_formulanet trocr udop vision-encoder-decoder",
     "a decoder that attends to an encoder of pictures"},
    {"whisper", "a decoder that attends to an encoder of sound"},

    /* Sound, proteins, motion. */
    {"moshi musicgen musicgen_melody", "several codes of sound at each place"},
    {"audioflamingo3 glmasr granite_speech granite_speech_plus moss_transcribe_diarize "
     "musicflamingo nemo_speechlm phi4_multimodal qwen2_5_omni_thinker qwen2_audio qwen3_asr "
     "qwen3_omni_moe_thinker seamless_m4t seamless_m4t_v2 vibevoice_asr voxtral voxtral_realtime",
     "an encoder of sound"},
    {"evolla", "an encoder of proteins"},
    {"pi0", "a second decoder of motions (flow matching)"},

    /* Pictures. */
    {"llama4", "an encoder whose patches turn and are shuffled into fewer, above a known decoder"},
    {"idefics mllama", "layers that attend to an encoder (cross-attention)"},
    {"blip", "a text decoder of the BERT kind that attends to an encoder"},
    {"git", "a text decoder of the BERT kind with pictures as its prefix"},
    {"blip-2 instructblip instructblipvideo", "a transformer of queries (Q-Former) as projector"},
    {"granite4_vision", "transformers of queries (Q-Former) in windows as projector"},
    {"aria idefics2 kosmos-2 kosmos-2.5", "learned queries that attend to patches, as projector"},
    {"molmo2", "a projector that attends to patches, and features of several layers"},
    {"aya_vision cohere2_vision", "a projector with a gate, above the decoder of Cohere 2"},
    {"cohere_compass cohere_compass_text",
     "the decoder of Cohere 2 with what layers of the encoder add to its own"},
    {"chameleon emu3 janus", "pictures as codes of a quantizing encoder (VQ)"},
    {"ovis2", "a table of embeddings that probabilities of the encoder weigh"},
    {"deepseek_ocr2 deepseek_vl_hybrid got_ocr2 pp_chart2table unlimited_ocr",
     "an encoder with windows and relative position bias (SAM)"},
    {"fast_vlm perception_lm timm_wrapper", "an encoder of the timm library"},
    {"glm46v glm4v glm4v_moe glm_ocr glmga", "an encoder whose patches a convolution merges"},
    {"kimi_k25", "an encoder with rotated patches and bicubic positions (MoonViT)"},
    {"cosmos3_edge", "a table of its keys and tensors, beside an encoder that is known (SigLIP 2)"},
    {"paddleocr_vl video_llama_3", "an encoder of pictures of any shape with rotated patches"},
    {"exaone4_5", "an encoder with fewer heads of keys than of queries"},
    {"hyperclovax_vision_v2", "the decoder of HyperCLOVA X below the encoder of Qwen2.5-VL"},
    {"hunyuan_vl", "a projector that ends each row of patches with a newline"},
    {"granite_docling", "several projectors, and a router that judges how dense a page is"},
    {"ernie4_5_vl_moe", "other experts for pictures than for text"},
    {"llava_next_video", "frames of videos that are pooled"},
    {"video_llava", "two encoders, of pictures and of videos"},

    /* Classes of pictures. */
    {"donut-swin", "a table of its keys and tensors, whose operations are known (Swin)"},
    {"convnextv2", "a norm of channels by their share of a picture (global response norm)"},
    {"beit data2vec-vision", "a table of relative positions in attention"},
    {"dinov2_with_registers", "tokens beside the class token that nothing reads (registers)"},
    {"ijepa vit_msn", "a table of its keys and tensors, whose operations are known"},
    {"metaclip_2", "a table of its keys and tensors, whose encoder is known (CLIP)"},
    {"bit efficientnet hgnet_v2 mobilenet_v1 mobilenet_v2 pp_lcnet regnet resnet textnet",
     "convolutions of pictures, with norms over the batch"},
    {"cvt levit mobilevit mobilevitv2 swiftformer",
     "convolutions of pictures among layers that attend"},
    {"dinat", "attention to neighbours, and stages that merge patches"},
    {"focalnet", "focal modulation in place of attention"},
    {"hiera", "stages that merge patches, with attention in units of a mask"},
    {"poolformer", "means of neighbours in place of attention"},
    {"pvt pvt_v2 segformer", "attention to patches that convolutions reduce"},
    {"imagegpt", "a decoder of clusters of colours"},
    {"perceiver", "latents that attend to pixels (cross-attention)"},
    {NULL, NULL},
};

const char *lf_hf_later_needs(const char *type)
{
    for (const struct lf_hf_later *l = lf_hf_laters; l->types; l++)
        if (lf_hf_in_words(type, l->types))
            return l->needs;
    return NULL;
}
