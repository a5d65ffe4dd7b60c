//go:build cgo

package nvml

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef int (*call_t)(void);

// preflight loads the library, initializes and unloads it again. It returns NVML's
// code; 12 (library not found) with a text when the file does not load.
static int preflight(const char *path, char *why, size_t len) {
	void *lib = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	if (lib == NULL) {
		const char *text = dlerror();
		snprintf(why, len, "%s", text == NULL ? "dlopen failed" : text);
		return 12;
	}
	int code = 12;
	call_t init = (call_t)dlsym(lib, "nvmlInit_v2");
	call_t shut = (call_t)dlsym(lib, "nvmlShutdown");
	if (init == NULL || shut == NULL) {
		snprintf(why, len, "%s has no nvmlInit_v2 or nvmlShutdown", path);
	} else {
		code = init();
		if (code == 0)
			shut();
	}
	dlclose(lib);
	return code;
}
*/
import "C"

import (
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent"
)

// defaultName is what go-nvml loads where no path is given.
const defaultName = "libnvidia-ml.so.1"

// required are functions that are called without asking: every library since R450
// has them, and what lacks one of them is no NVML library.
var required = []string{
	"nvmlSystemGetDriverVersion", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetName",
	"nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetMinorNumber",
	"nvmlDeviceGetEccMode",
}

// preflight finds out whether initialization works without leaving the library
// loaded when it does not. go-nvml keeps a library that failed to initialize, and
// the process would then never see the file that an upgrade puts in its place.
func preflight(path string) error {
	if path == "" {
		path = defaultName
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var why [256]C.char
	code := nvml.Return(C.preflight(name, &why[0], C.size_t(len(why))))
	if code == nvml.ERROR_LIBRARY_NOT_FOUND {
		if detail := C.GoString(&why[0]); detail != "" {
			return agent.NewError(agent.LibraryMissing, "dlopen", detail)
		}
	}
	return convert("nvmlInit", code)
}
