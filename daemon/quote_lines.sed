# Each line of a text as a C string with a comma behind it.
s/["\\]/\\&/g
s/.*/"&",/
