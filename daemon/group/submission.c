#include "group/submission.h"
