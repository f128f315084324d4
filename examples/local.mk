# files of examples
