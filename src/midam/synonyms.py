"""Words that other libraries and tables use for a name of ours: a suggestion looks here before it compares letters."""

import re
from collections.abc import Iterable
from functools import cache, lru_cache

# Of settings, options and parameters: ours, and what else it is called.
_NAMES = {
    "accelerator": "device devices gpu gpus cuda mps use_gpu use_cuda no_cuda",
    "allow_leakage": "leakage allow_overlap",
    "augment": "augmentation augmentations transform transforms data_augmentation random_flip",
    "average_from": "swa ema swa_start model_averaging",
    "bag_by": "level bag_level aggregate_by",
    "bag_column": "id bag bag_id bags slide slide_id slide_column case_id wsi wsi_id name_column id_column file_column "
    "filename_label",
    "balance": "site site_column center center_column hospital batch_column",
    "baseline": "no_baselines baselines",
    "budget": "time_budget time_limit max_time timeout_minutes",
    "checkpointing": "gradient_checkpointing activation_checkpointing",
    "class": "target_class class_name",
    "clip": "clip_features clipping",
    "compile": "torch_compile jit",
    "config": "settings cfg yaml config_file",
    "coords": "coordinates coord coord_columns coordinate_columns xy positions",
    "covariates": "clinical clinical_columns confounders metadata tabular",
    "cv": "folds k n_folds num_folds kfold kfolds k_fold n_splits cross_validation repeats n_repeats",
    "decay_at": "milestones lr_decay decay_epochs lr_decay_epochs epoch_decay lr_steps lr_schedule decay",
    "devices": "device gpus gpu num_gpus n_gpus nproc_per_node world_size",
    "draw": "instance_sampler instance_sampling",
    "dropout": "drop dropout_rate drop_rate drop_out p_drop",
    "encoder": "model arch architecture backbone network net model_name feature_extractor extractor patch_encoder "
    "patch_encoder_name slide_encoder",
    "encoder_weights": "pretrained weights pretrained_weights from_pretrained init",
    "epochs": "epoch n_epochs num_epochs max_epochs max_epoch max_iter n_iter iterations n_iterations num_train_epochs",
    "fold": "folds split_number fold_id kfold kfolds k",
    "format": "formats onnx torchscript format_out export_format",
    "freeze": "frozen freeze_encoder finetune unfreeze",
    "grades": "levels ordinal_levels",
    "groups": "group group_column group_id patient patients patient_id patient_column case case_id subject subject_id "
    "patient_label",
    "hidden": "hidden_size hidden_dim hidden_dims hidden_units hidden_layers hidden_layer_sizes units layers n_layers "
    "num_layers embed_dim model_size depth",
    "ignore": "drop_columns exclude exclude_columns skip_columns ignore_columns",
    "ignore_columns": "drop_columns exclude exclude_columns skip_columns ignore drop",
    "impute": "imputation imputer fillna fill_missing missing_values nan",
    "instances": "attention instance_scores return_attention save_attention attention_only attention_scores",
    "jobs": "n_jobs num_workers workers num_jobs n_workers processes cores num_cpus cpus max_workers",
    "label_column": "label target_column target y y_column outcome outcome_column diagnosis class class_column "
    "labels_column label_col target_col endpoint ground_truth_label time event time_column event_column censor "
    "censorship",
    "labels": "label label_file label_table csv csv_path clini clini_table clinical_table annotations "
    "custom_list_of_wsis",
    "logger": "log logging tensorboard wandb mlflow tracker",
    "logger_args": "project tags notes",
    "lr": "learning_rate learning_rates lrate eta step_size base_lr init_lr learning_rate_init",
    "lrs": "lr learning_rate learning_rates lrate eta step_size base_lr init_lr learning_rate_init",
    "magnification": "mag target_mag objective_power level patch_level slide_level",
    "margins": "margin",
    "max_fpr": "fpr fpr_max",
    "members": "ensemble ensemble_size n_models num_models n_estimators n_members seeds",
    "method": "model algorithm algo mil mil_model",
    "methods": "models model method algorithms estimators pooling loss objective criterion baselines reference",
    "metrics": "metric eval_metric metrics_list scoring",
    "missing": "skip_missing ignore_missing allow_missing skip skip_errors",
    "momentum": "beta beta1 betas",
    "norm": "batch_norm batchnorm normalization layer_norm groupnorm",
    "num_instances": "bag_size instances_per_bag n_instances num_patches n_patches num_tiles max_instances max_tiles b",
    "num_nodes": "nodes nnodes machines",
    "num_positive": "batch_size batchsize bags_per_batch positives n_positive train_batch_size micro_batch_size",
    "num_negative": "batch_size batchsize bags_per_batch negatives n_negative train_batch_size micro_batch_size",
    "objective": "loss loss_function criterion loss_fn loss_type bag_loss aucm",
    "optimizer": "optim opt solver adamw",
    "out": "output output_dir out_dir output_path outdir save_dir save_path save results results_dir result_dir "
    "run_dir log_dir destination dest o output_file output_csv json html run_name exp_name exp_code exp_dir "
    "experiment report_name default_root_dir",
    "patience": "early_stopping early_stop early_stopping_patience early_stopping_rounds es_patience n_iter_no_change",
    "pooling": "pool aggregation aggregator attention_type mil_pooling agg head model_type",
    "positive": "pos_label positive_class positive_label pos",
    "precision": "amp mixed_precision fp16 bf16 bfloat16 half dtype autocast",
    "pseudonyms": "pseudonymize pseudonymise anonymize anonymise deidentify",
    "reader": "reader_type",
    "resident": "cache cache_rate cache_data in_memory preload",
    "resume": "resume_from checkpoint ckpt ckpt_path continue restart from_checkpoint",
    "scaling": "scaler",
    "seed": "random_state random_seed manual_seed rng rng_seed random",
    "select": "checkpoint_metric keep best save_best monitor",
    "series": "modality",
    "sheet": "sheet_name",
    "show_progress": "verbose quiet silent progress progress_bar",
    "slice_size": "spatial_size roi_size image_size img_size resize",
    "slides": "slide_table",
    "spacing": "pixdim voxel_size",
    "split": "split_column splits partition partition_column",
    "split_file": "splits split_dir splits_dir split_table split_path",
    "standardize": "normalize normalise standardise scale",
    "state_rate": "gamma gamma0",
    "stride": "step_size overlap",
    "target": "task problem_type problem objective_type outcome_type survival regression classification multiclass",
    "temperature": "temp tau",
    "test_fraction": "test_size test_split test_ratio test_frac holdout test",
    "threads": "n_jobs num_threads n_threads cores",
    "tissue": "seg segment segmenter segmentation otsu tissue_threshold remove_holes remove_artifacts",
    "top": "top_k topk n_top k",
    "trust": "trust_remote_code yes",
    "val_every": "check_val_every_n_epoch val_check_interval eval_every eval_interval val_interval",
    "val_fraction": "val_size validation_fraction validation_split val_split validation_size val_ratio val valid "
    "eval_size val_frac",
    "volume_size": "spatial_size roi_size resize",
    "patch_size": "tile_size tile_size_px spatial_size roi_size",
    "weight_decay": "wd l2 l2_penalty reg regularization weightdecay lambda decay alpha reg_lambda penalty",
    "window": "hu_window intensity_range a_min a_max window_level",
    "workers": "n_jobs num_workers n_workers loader_workers dataloader_workers max_workers",
}
# Of values.
_VALUES = {
    "adam": "adamw nadam",
    "attention": "abmil att deepmil ilse",
    "bag-statistics-extratrees": "extratrees extra_trees randomforest random_forest forest trees",
    "bag-statistics-logistic": "logistic logistic_regression logreg",
    "bce": "binary_cross_entropy logloss log_loss logistic",
    "compare": "cv crossval cross_validate cross_validation benchmark tune",
    "data": "dataset datasets import describe list fetch verify info",
    "evaluate": "test eval validate score",
    "explain": "heatmap heatmaps attention interpret visualize saliency",
    "export": "convert onnx deploy card",
    "fit": "train training learn run",
    "predict": "infer inference score apply",
    "bf16-mixed": "bf16 fp16 16 16_mixed bfloat16 half mixed",
    "binary": "classification two_class binary_classification",
    "continuous": "regression number numeric real",
    "cox": "survival partial_likelihood coxph",
    "cross-entropy": "ce softmax categorical nll",
    "cuda": "gpu cuda_0 nvidia",
    "error": "raise strict",
    "gated-attention": "gated gatedattention gated_abmil gabmil clam",
    "max": "maximum",
    "mean": "average avg",
    "minmax-auc": "auc auroc auc_m aucm aucmloss",
    "multiclass": "classification classes categorical multi_class",
    "multilabel": "multi_label multioutput labels",
    "ordinal": "grades grade ordered ranking",
    "partial-auc": "pauc partial_auroc",
    "patient": "case subject",
    "slide": "image wsi file",
    "skip": "ignore drop",
    "smoothed-max": "logsumexp lse softmax smooth_max soft_max smx",
    "survival": "time_to_event cox censored tte",
}
# Columns of tables: of each group, one may stand where another is looked for.
_COLUMNS = (
    "label labels target targets class classes category y outcome diagnosis dx response status ground_truth gt truth "
    "grade subtype isup_grade is_tumor tumor malignant positive event",
    "bag bag_id bagid bags slide slide_id slideid slides wsi wsi_id image image_id image_name file filename file_name "
    "path id name sample sample_id specimen case case_id patient patient_id patientid subject subject_id",
    "group groups group_id patient patient_id patientid patients case case_id subject subject_id participant "
    "participant_id submitter_id donor donor_id mrn",
    "split splits set partition fold subset phase",
    "time times os_time os_months os_days pfs_time survival_time duration followup follow_up days months time_to_event",
    "event events os_event pfs_event censor censored censorship vital_status status dead death deceased",
    "path file filename file_name filepath file_path location uri",
    "x x_coord coord_x pos_x left col column",
    "y y_coord coord_y pos_y top row",
    "site sites center centre hospital institution scanner batch",
    "age age_years age_at_diagnosis",
    "sex gender",
)
_NAMING = " ".join(_COLUMNS[1:3])  # words for what a column of ids names
# Options of one command, beside the settings.
OPTIONS = {
    "fit": "out method budget resume config devices num_nodes timeout every_fold trust",
    "predict": "instances shard merge",
    "evaluate": "metrics",
    "explain": "bags class top all no_faithful images image_downsample",
    "compare": "methods cv lrs margins keep_models deploy deploy_method jobs backend cluster",
    "report": "subgroups table pseudonyms",
    "export": "format license",
    "data import": "unlabeled",
}
# What no name of ours stands for, and what to do instead.
_ADVICE = {
    "cv folds n_folds kfold kfolds k_fold n_splits cross_validation k_start k_end repeats": "several folds are "
    "trained by `midam compare DATA --cv`",
    "time_budget time_limit max_time": "there is none: set `epochs` or `num_instances`; of the method auto --budget",
    "threshold cutoff": "the threshold is chosen on the validation bags of the run",
    "calibrate calibration platt temperature_scaling": "there is none: probabilities are calibrated on the validation "
    "bags",
    "verbose quiet silent progress progress_bar debug log_level": "there is none: progress is written to stderr, "
    "results to stdout",
    "device devices gpu gpus cuda accelerator num_gpus": "there is none: a CUDA device is used where `midam fit` was "
    "told to",
    "strategy ddp fsdp distributed distributed_backend dist_backend local_rank rank master_port tpu_cores "
    "find_unused_parameters sync_batchnorm horovod deepspeed": "there is none: `midam fit --devices N` trains with N "
    "processes that average their gradients, `--num-nodes` on several machines",
    "scheduler lr_scheduler warmup warmup_steps warmup_epochs warmup_ratio cosine gamma_lr reduce_lr plateau": "the "
    "learning rate falls at the parts of the training that `decay_at` names",
    "batch_size batch val_batch_size test_batch_size eval_batch_size sw_batch_size": "there is none: bags are read as "
    "memory allows",
    "accumulate_grad_batches gradient_accumulation_steps grad_accum": "there is none: `num_positive` and "
    "`num_negative` set the batch, `checkpointing` saves memory",
    "gradient_clip_val gradient_clip_norm max_grad_norm clip_grad clip_grad_norm grad_clip gradient_clip clipnorm "
    "clip_value": "there is none: gradients are not clipped; a smaller `lr` steadies a training",
    "nesterov amsgrad eps epsilon tol beta2 adam_epsilon": "there is none: of an optimizer, `lr`, `momentum` and "
    "`weight_decay` are set",
    "l1 l1_ratio reg_alpha c": "there is none: `weight_decay` is the only penalty on weights",
    "class_weight class_weights pos_weight scale_pos_weight weighted_sampler weighted_sample sample_weight sampler "
    "sampling_rate balanced balanced_sampling imratio oversample oversampling undersample smote is_unbalance": "there "
    "is none: AUC weighs both classes alike; `num_positive` and `num_negative` set how many bags of each a batch has",
    "inst_loss instance_loss bag_weight k_sample subtyping no_inst_cluster instance_eval": "there is none: no loss of "
    "instances is added, as CLAM's is; `pooling` and `objective` make the method",
    "min_delta min_epochs max_steps steps steps_per_epoch": "there is none: a training runs for its `epochs`, or "
    "until `patience` ends it",
    "callbacks callback profiler hooks": "there is none: `logger` tracks a training, which may be a class path",
    "log_every_n_steps log_interval print_every print_freq": "there is none: metrics.csv gets a line an epoch",
    "enable_checkpointing save_every save_top_k save_freq save_steps save_checkpoint": "there is none: a run saves "
    "itself, and `select` says which weights are reported",
    "checkpoint ckpt ckpt_path load load_from model_path resume resume_from weights_path": "a run is given as its "
    "folder, without a flag, as in `midam predict RUN DATA`; `midam fit --resume RUN` continues it",
    "mode": "there is none: a higher validation AUROC is better",
    "deterministic benchmark cudnn_benchmark": "there is none: the same `seed` and `threads` repeat a training bit "
    "for bit",
    "pin_memory persistent_workers prefetch_factor prefetch": "there is none: `workers` read ahead",
    "activation act bias n_heads num_heads heads gate attention_dim kernel": "there is none: further arguments go "
    "into `encoder_args` and `pooling_args`",
    "num_classes n_classes classes categories class_names": "there is none: the classes are the values of "
    "`label_column`",
    "in_channels channels in_dim input_dim in_features n_features num_features input_size input_shape out_features "
    "spatial_dims": "there is none: shapes are read from the data",
    "max_depth subsample colsample_bytree min_child_weight booster tree_method num_boost_round num_round num_leaves "
    "min_samples_leaf": "there is none: trees have fixed settings, as `midam fit --method bag-statistics-extratrees`",
    "grid param_grid hyperparameters n_trials trials search tune": "there is none: `midam compare` chooses among "
    "--lrs and --margins",
    "metric metrics scoring eval_metric": "further metrics are reported by `midam evaluate RUN DATA --metrics`",
    "confidence ci confidence_interval n_boot n_bootstrap bootstrap alpha_level significance statistical_test": ""
    "there is none: intervals are of 95 %, by a way that fits the bags",
    "seed random_state random_seed manual_seed": "`midam fit` has one; the folds of each repeat of `midam compare` "
    "are drawn from a seed of their own",
    "data dataset dataset_name data_path data_root root root_dir input input_dir data_dir features feature_dir "
    "features_dir feats_dir embeddings wsi_dir h5_dir h5 job_dir coords_dir image_dir x": "DATA is given without "
    "a flag, as in `midam fit DATA`",
    "train_data train_csv val_data val_csv test_data test_csv train_dir test_dir val_dir": "one DATA holds all bags, "
    "and its column split or a split file says which are which; `midam evaluate RUN DATA` tests on others",
    "train_fraction train_size train_ratio train_split label_frac": "there is none: the bags that `val_fraction` and "
    "`test_fraction` leave are trained on",
    "stratify stratified": "there is none: splits always hold the classes alike, and groups together",
    "shuffle": "there is none: bags are always drawn at random",
    "max_bags limit n n_samples sample frac nrows limit_train_batches overfit_batches fast_dev_run dry_run": "there "
    "is none: name fewer bags in the label table; `epochs` of 1 is a trial",
    "columns usecols feature_columns feature_cols feature_names index_col": "there is none: numbers in columns that "
    "no option names are features, without those of `ignore`",
    "sep delimiter encoding header skiprows na_values wsi_ext ext": "there is none: the form of a file is found by "
    "itself",
    "mpp target_mpp tile_size_um": "there is none: `magnification` 20 is about 0.5 micrometers a pixel, and "
    "`patch_size` is in pixels",
    "stain_norm stain_normalization macenko": "there is none: normalize stains before; the change color of `augment` "
    "varies them",
    "pca n_components feature_selection": "there is none: change the features before, and give the file of the new "
    "ones",
    "compress compression no_cache cache_dir": "there is none: instances are read from the data, or from a store as "
    "they are",
    "tta test_time_augmentation": "there is none: each instance is scored once, as it is",
    "proba predict_proba return_proba output_type": "there is none: score and probability are always written",
    "heatmap heatmaps saliency shap gradcam cam cams colormap cmap overlay vis_level explainer": "there is none: "
    "`midam explain RUN DATA` draws the weight of each instance where it knows its place",
    "opset opset_version dynamic_axes quantize int8 simplify half": "there is none: a run is exported as it was "
    "trained, in float32",
    "title template theme author lang language logo pdf": "there is none: a report is one HTML page, which a browser "
    "prints",
    "version v": "`midam --version` prints it",
    "name": "there is none: `out` names the folder",
    "force overwrite exist_ok append": "there is none: nothing is overwritten; remove the old folder, or name another",
}


def plain_key(name: object) -> str:
    """A name without case, hyphens and other signs.

    Examples
    --------
    >>> plain_key("--Learning-Rate") == plain_key("learning_rate") == plain_key("learningRate")
    True
    """
    return _plain(str(name))


def same_meaning(name: object, known: Iterable[str], *, columns: bool = False) -> list[str]:
    """Those of the `known` names that differ from a name by signs alone, or are ours for it; `columns` of a table.

    Examples
    --------
    >>> same_meaning("learning-rate", ["epochs", "lr", "pair_rate"])
    ['lr']
    >>> same_meaning("label", ["channel", "Diagnosis"], columns=True)
    ['Diagnosis']
    >>> same_meaning("bag", ["age", "customer_id"], columns=True)
    ['customer_id']
    """
    key, names = plain_key(name), list(known)
    alike = [own for own in names if plain_key(own) == key]
    if alike or not key:
        return alike
    if columns:
        words = [word for group in _COLUMNS if key in (keys := _keys(group)) for word in keys]
        # In the order of the table of words: the most usual one first.
        found = [own for word in dict.fromkeys(words) for own in names if plain_key(own) == word]
        return found or [own for own in names if key in _keys(_NAMING) and is_id_like(own)]
    ours = [name for table in (_NAMES, _VALUES) for name, words in table.items() if key in _keys(words)]
    return [own for name in dict.fromkeys(map(plain_key, ours)) for own in names if plain_key(own) == name]


def is_usual_column(name: object) -> bool:
    """Whether what a column of this name means is known."""
    return any(plain_key(name) in _keys(words) for words in _COLUMNS)


def is_id_like(name: str) -> bool:
    """Whether a column is called as one of ids is: id, transaction_id, TransactionID, uuid."""
    return re.search(r"(^|[^A-Za-z]|[a-z](?=I))(id|ID|Id)$|^uu?id$", name) is not None


def is_known_word(name: object) -> bool:
    """Whether it is known what others mean by a name, so that letters in common with another say nothing."""
    key = plain_key(name)
    return any(key in _keys(words) for words in (*_NAMES.values(), *_VALUES.values(), *_ADVICE))


def advice_for(name: object) -> str:
    """What to do where no name of ours stands for a word of others; empty where nothing is known of it."""
    key = plain_key(name)
    return next((text for words, text in _ADVICE.items() if key in _keys(words)), "")


@lru_cache(maxsize=4096)
def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name.casefold())


@cache
def _keys(words: str) -> dict[str, None]:
    return dict.fromkeys(map(plain_key, words.split()))
