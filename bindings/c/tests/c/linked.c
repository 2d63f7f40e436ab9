// Both libraries in one program, as scripts/test-c links it: from their static libraries, and as a program without shared libraries.

#include <rocketbufs.h>
#include <rocketstreams.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    struct rs_manager *manager = NULL;
    rb_context *context;
    if (rs_manager_new("none", &manager) == 0 || manager || rb_context_new(NULL, &context) || rb_context_free(context)) return 1;
    if (rb_context_free(context) != RB_ERR_FREED || !strstr(rb_last_error(), "was freed")) return 1;
    puts("linked: ok");
    return 0;
}
