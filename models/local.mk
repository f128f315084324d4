# files of models
