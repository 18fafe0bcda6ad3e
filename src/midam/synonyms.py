"""Words that other libraries and tables use for a name of ours: a suggestion looks here before it compares letters."""

import re
from collections.abc import Iterable

# Of settings, options and parameters: ours, and what else it is called.
_NAMES = {
    "accelerator": "device devices gpu gpus cuda mps use_gpu use_cuda no_cuda",
    "allow_leakage": "leakage allow_overlap",
    "augment": "augmentation augmentations transform transforms data_augmentation",
    "bag_by": "level bag_level aggregate_by",
    "bag_column": "id bag bag_id bags slide slide_id slide_column case_id wsi wsi_id name_column id_column file_column",
    "balance": "site site_column center center_column hospital batch_column",
    "baseline": "no_baselines baselines",
    "budget": "time_limit max_time timeout_minutes",
    "checkpointing": "gradient_checkpointing",
    "clip": "clip_value clipping",
    "compile": "torch_compile jit",
    "config": "settings cfg yaml config_file",
    "coords": "coordinates coord coord_columns coordinate_columns xy positions",
    "covariates": "clinical clinical_columns confounders metadata tabular",
    "cv": "folds n_folds num_folds kfold k_fold n_splits cross_validation repeats",
    "devices": "device gpus gpu num_gpus n_gpus nproc_per_node world_size",
    "dropout": "drop dropout_rate drop_rate drop_out p_drop",
    "encoder": "model arch architecture backbone network net model_name feature_extractor extractor",
    "encoder_weights": "pretrained weights pretrained_weights",
    "epochs": "epoch n_epochs num_epochs max_epochs max_epoch max_iter n_iter iterations n_iterations num_train_epochs",
    "fold": "folds split_number fold_id kfold k",
    "freeze": "frozen freeze_encoder",
    "grades": "levels ordinal_levels",
    "groups": "group group_column group_id patient patients patient_id patient_column case case_id subject subject_id",
    "hidden": "hidden_size hidden_dim hidden_dims hidden_units hidden_layers hidden_layer_sizes units layers",
    "ignore": "drop_columns exclude exclude_columns skip_columns ignore_columns",
    "ignore_columns": "drop_columns exclude exclude_columns skip_columns ignore drop",
    "impute": "imputation imputer fillna fill_missing missing_values nan",
    "jobs": "n_jobs num_workers workers num_jobs n_workers processes cores num_cpus cpus",
    "label_column": "label target_column target y y_column outcome outcome_column diagnosis class class_column "
    "labels_column label_col target_col endpoint",
    "labels": "label label_file label_table csv clini clini_table clinical_table annotations",
    "logger": "log logging tensorboard wandb mlflow tracker",
    "lr": "learning_rate learning_rates lrate eta step_size alpha base_lr init_lr learning_rate_init",
    "lrs": "lr learning_rate learning_rates lrate eta step_size",
    "margins": "margin",
    "members": "ensemble ensemble_size n_models num_models n_estimators n_members seeds",
    "method": "model algorithm algo mil mil_model",
    "methods": "models method algorithms estimators pooling",
    "missing": "skip_missing ignore_missing allow_missing",
    "momentum": "beta beta1 betas",
    "norm": "batch_norm batchnorm normalization layer_norm groupnorm",
    "num_instances": "bag_size instances_per_bag n_instances num_patches n_patches num_tiles max_instances k",
    "num_nodes": "nodes nnodes machines",
    "num_positive": "batch_size batchsize bags_per_batch positives n_positive",
    "num_negative": "batch_size batchsize bags_per_batch negatives n_negative",
    "objective": "loss loss_function criterion loss_fn loss_type",
    "optimizer": "optim opt solver",
    "out": "output output_dir out_dir output_path outdir save_dir save_path save results results_dir result_dir "
    "run_dir log_dir destination dest o",
    "patience": "early_stopping early_stop early_stopping_patience es_patience n_iter_no_change",
    "pooling": "pool aggregation aggregator attention_type mil_pooling agg head",
    "positive": "pos_label positive_class positive_label pos",
    "precision": "amp mixed_precision fp16 bf16 half dtype",
    "resume": "resume_from checkpoint ckpt continue restart from_checkpoint",
    "scaling": "scaler",
    "seed": "random_state random_seed manual_seed rng rng_seed random",
    "select": "checkpoint_metric keep best save_best",
    "show_progress": "verbose quiet silent progress progress_bar",
    "split": "split_column splits partition partition_column",
    "split_file": "splits split_dir splits_dir split_table split_path",
    "standardize": "normalize normalise standardise scale",
    "target": "task problem_type problem objective_type outcome_type",
    "temperature": "temp tau",
    "test_fraction": "test_size test_split test_ratio holdout test",
    "threads": "n_jobs num_threads n_threads cores",
    "val_fraction": "val_size validation_fraction validation_split val_split validation_size val_ratio val valid "
    "eval_size",
    "weight_decay": "wd l2 l2_penalty reg regularization weightdecay lambda decay",
    "workers": "n_jobs num_workers n_workers loader_workers dataloader_workers",
}
# Of values.
_VALUES = {
    "adam": "adamw nadam",
    "attention": "abmil att deepmil ilse",
    "bag-statistics-extratrees": "extratrees extra_trees randomforest random_forest forest trees",
    "bag-statistics-logistic": "logistic logistic_regression logreg",
    "bce": "binary_cross_entropy logloss log_loss logistic",
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
# What no name of ours stands for, and what to do instead.
_ADVICE = {
    "cv folds n_folds kfold k_fold n_splits cross_validation": "several folds are trained by `midam compare DATA --cv`",
    "time_budget time_limit max_time": "there is none: set `epochs` or `num_instances`; of the method auto --budget",
    "threshold cutoff": "the threshold is chosen on the validation bags of the run",
    "verbose quiet silent progress": "there is none: progress is written to stderr, results to stdout",
    "device devices gpu gpus cuda accelerator": "there is none: a CUDA device is used where `midam fit` was told to",
    "scheduler lr_scheduler": "the learning rate falls at the parts of the training that `decay_at` names",
    "batch_size": "there is none: bags are read as memory allows",
    "seed random_state random_seed": "there is none: the folds of each repeat are drawn from a seed of its own",
    "data input input_dir data_dir features feature_dir": "DATA is given without a flag, as in `midam fit DATA`",
    "shuffle": "there is none: bags are always drawn at random",
    "force overwrite": "there is none: nothing is overwritten; remove the old folder, or name another",
}


def plain_key(name: object) -> str:
    """A name without case, hyphens and other signs.

    Examples
    --------
    >>> plain_key("--Learning-Rate") == plain_key("learning_rate") == plain_key("learningRate")
    True
    """
    return re.sub(r"[\W_]", "", str(name).casefold())


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


def advice_for(name: object) -> str:
    """What to do where no name of ours stands for a word of others; empty where nothing is known of it."""
    key = plain_key(name)
    return next((text for words, text in _ADVICE.items() if key in _keys(words)), "")


def _keys(words: str) -> list[str]:
    return [plain_key(word) for word in words.split()]
