# files of templates
