// A fake libnvidia-ml.so.1 for tests: it answers from a text file and touches no
// hardware. KPGPU_FAKE_NVML names the file. It is read again on every call, so that
// faults can be scripted while a process has the library loaded.
//
// Lines are key=value; the last line of a key wins. Keys for the node:
//   init=N               code that nvmlInit_v2 returns
//   driver= library=     versions;  cuda=12040
//   gpus=N               number of GPUs
//   hang.FUNCTION=1      the function does not return while this line is there
//   ret.FUNCTION=N       the function returns N
//   event=ID GPU XID GI  an XID event; IDs rise, each is delivered once; GI -1 for none
// Keys for a GPU start with "gpu.INDEX.", or with "gpu.*." for those that have none
// of their own:
//   lost=1, name=, uuid=, memory=MiB, cc=9.0, minor=N, hang.FUNCTION=, ret.FUNCTION=
//   mig=MODE PENDING [PROFILE:START:SIZE:ID:UUID ...]
//   ecc=ENABLED PENDING UNCORRECTABLE SRAMTHRESHOLD
//   rows=CORRECTABLE UNCORRECTABLE PENDING FAILED PAGES REPAIR
//   inforom=VALID  nvlink=ACTIVE TOTAL  fabric=STATE STATUS  pcie=WIDTH MAX
//   throttle=MASK  recovery=ACTION  persistence=ON
// A value of "unsupported" makes the call return NOT_SUPPORTED.
//
// -DNO_FUNCTION leaves a function out, as an older library would.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nvml.h"

#define MAX_GPUS 64
#define MAX_INSTANCES 16
#define VALUE 2048

struct nvmlDevice_st {
	unsigned int index;
	int instance; // slot of a MIG device, -1 for a GPU
};
struct nvmlGpuInstance_st {
	unsigned int gpu, slot;
};
struct nvmlEventSet_st {
	int unused;
};

static struct nvmlDevice_st gpus[MAX_GPUS], migs[MAX_GPUS][MAX_INSTANCES];
static struct nvmlGpuInstance_st instances[MAX_GPUS][MAX_INSTANCES];
static struct nvmlEventSet_st the_set __attribute__((unused)); // without events nobody asks for it
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int initialized;
static unsigned long last_event;

static void nap(long ms) {
	struct timespec t = {ms / 1000, (ms % 1000) * 1000000L};
	nanosleep(&t, NULL);
}

// get reads the last value of a key into out (VALUE bytes) and says if it is there.
static int get(const char *key, char *out) {
	const char *path = getenv("KPGPU_FAKE_NVML");
	FILE *f = path == NULL ? NULL : fopen(path, "r");
	if (f == NULL)
		return 0;
	char line[VALUE + 128];
	size_t n = strlen(key);
	int found = 0;
	while (fgets(line, sizeof line, f) != NULL) {
		line[strcspn(line, "\n")] = 0;
		if (strncmp(line, key, n) == 0 && line[n] == '=') {
			snprintf(out, VALUE, "%.*s", VALUE - 1, line + n + 1);
			found = 1;
		}
	}
	fclose(f);
	return found;
}

static long number(const char *key, long otherwise) {
	char v[VALUE];
	return get(key, v) ? strtol(v, NULL, 10) : otherwise;
}

// get_gpu reads a key of one GPU, or that of all.
static int get_gpu(unsigned int index, const char *key, char *out) {
	char full[256];
	snprintf(full, sizeof full, "gpu.%u.%s", index, key);
	if (get(full, out))
		return 1;
	snprintf(full, sizeof full, "gpu.*.%s", key);
	return get(full, out);
}

// enter is the start of every function: it hangs or fails as the script says.
static nvmlReturn_t enter(const char *function) {
	char key[256];
	snprintf(key, sizeof key, "hang.%s", function);
	while (number(key, 0))
		nap(10);
	snprintf(key, sizeof key, "ret.%s", function);
	return (nvmlReturn_t)number(key, NVML_SUCCESS);
}

static nvmlReturn_t enter_gpu(nvmlDevice_t device, const char *function) {
	if (!initialized)
		return NVML_ERROR_UNINITIALIZED;
	if (device.handle == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t ret = enter(function);
	if (ret != NVML_SUCCESS)
		return ret;
	char key[256], v[VALUE];
	unsigned int i = device.handle->index;
	snprintf(key, sizeof key, "hang.%s", function);
	while (get_gpu(i, key, v) && atoi(v))
		nap(10);
	if (get_gpu(i, "lost", v) && atoi(v))
		return NVML_ERROR_GPU_IS_LOST;
	snprintf(key, sizeof key, "ret.%s", function);
	return get_gpu(i, key, v) ? (nvmlReturn_t)atoi(v) : NVML_SUCCESS;
}

// facts reads the numbers of a key; what is missing is zero.
static nvmlReturn_t facts(nvmlDevice_t device, const char *function, const char *key, unsigned long long *n, int count) {
	nvmlReturn_t ret = enter_gpu(device, function);
	if (ret != NVML_SUCCESS)
		return ret;
	char v[VALUE];
	if (!get_gpu(device.handle->index, key, v) || strcmp(v, "unsupported") == 0)
		return NVML_ERROR_NOT_SUPPORTED;
	char *at = v;
	for (int i = 0; i < count; i++)
		n[i] = strtoull(at, &at, 10);
	return NVML_SUCCESS;
}

static nvmlReturn_t copy(char *to, unsigned int length, const char *from) {
	if (strlen(from) >= length)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(to, from);
	return NVML_SUCCESS;
}

// instance is one MIG instance of the script.
struct instance {
	char profile[64], uuid[64];
	int start, size, id;
};

// read_instances returns how many instances a GPU has.
static int read_instances(unsigned int index, struct instance *out) {
	char v[VALUE];
	if (!get_gpu(index, "mig", v))
		return 0;
	int n = 0;
	char *save = NULL;
	for (char *word = strtok_r(v, " ", &save); word != NULL && n < MAX_INSTANCES; word = strtok_r(NULL, " ", &save)) {
		struct instance *in = &out[n];
		if (sscanf(word, "%63[^:]:%d:%d:%d:%63s", in->profile, &in->start, &in->size, &in->id, in->uuid) == 5)
			n++;
	}
	return n;
}

nvmlReturn_t nvmlInit_v2(void) {
	nvmlReturn_t ret = enter("nvmlInit_v2");
	if (ret == NVML_SUCCESS)
		ret = (nvmlReturn_t)number("init", NVML_SUCCESS);
	if (ret != NVML_SUCCESS)
		return ret;
	pthread_mutex_lock(&mutex);
	initialized++;
	for (unsigned int i = 0; i < MAX_GPUS; i++) {
		gpus[i] = (struct nvmlDevice_st){i, -1};
		for (int k = 0; k < MAX_INSTANCES; k++) {
			migs[i][k] = (struct nvmlDevice_st){i, k};
			instances[i][k] = (struct nvmlGpuInstance_st){i, k};
		}
	}
	pthread_mutex_unlock(&mutex);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlShutdown(void) {
	pthread_mutex_lock(&mutex);
	nvmlReturn_t ret = initialized > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
	if (initialized > 0)
		initialized--;
	pthread_mutex_unlock(&mutex);
	return ret;
}

const char *nvmlErrorString(nvmlReturn_t result) {
	(void)result;
	return "fake";
}

static nvmlReturn_t node_text(const char *function, const char *key, char *to, unsigned int length) {
	nvmlReturn_t ret = enter(function);
	char v[VALUE] = "";
	if (ret != NVML_SUCCESS)
		return ret;
	get(key, v);
	return copy(to, length, v);
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
	return node_text("nvmlSystemGetDriverVersion", "driver", version, length);
}

#ifndef NO_nvmlSystemGetNVMLVersion
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
	return node_text("nvmlSystemGetNVMLVersion", "library", version, length);
}
#endif

#ifndef NO_nvmlSystemGetCudaDriverVersion_v2
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
	*version = (int)number("cuda", 0);
	return enter("nvmlSystemGetCudaDriverVersion_v2");
}
#endif

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
	nvmlReturn_t ret = enter("nvmlDeviceGetCount_v2");
	if (ret != NVML_SUCCESS)
		return ret;
	// A driver that went away answers so to a process that is initialized.
	long init = number("init", NVML_SUCCESS);
	if (init != NVML_SUCCESS)
		return (nvmlReturn_t)init;
	*count = (unsigned int)number("gpus", 0);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
	if (index >= MAX_GPUS || index >= (unsigned int)number("gpus", 0))
		return NVML_ERROR_INVALID_ARGUMENT;
	device->handle = &gpus[index];
	return enter_gpu(*device, "nvmlDeviceGetHandleByIndex_v2");
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
	nvmlReturn_t ret = enter_gpu(device, "nvmlDeviceGetName");
	char v[VALUE] = "";
	if (ret != NVML_SUCCESS)
		return ret;
	get_gpu(device.handle->index, "name", v);
	struct instance in[MAX_INSTANCES];
	if (device.handle->instance >= 0 && device.handle->instance < read_instances(device.handle->index, in)) {
		strncat(v, " MIG ", sizeof v - strlen(v) - 1);
		strncat(v, in[device.handle->instance].profile, sizeof v - strlen(v) - 1);
	}
	return copy(name, length, v);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
	nvmlReturn_t ret = enter_gpu(device, "nvmlDeviceGetUUID");
	char v[VALUE] = "";
	if (ret != NVML_SUCCESS)
		return ret;
	struct instance in[MAX_INSTANCES];
	if (device.handle->instance >= 0 && device.handle->instance < read_instances(device.handle->index, in))
		return copy(uuid, length, in[device.handle->instance].uuid);
	get_gpu(device.handle->index, "uuid", v);
	return copy(uuid, length, v);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
	unsigned long long n[1];
	nvmlReturn_t ret = facts(device, "nvmlDeviceGetMemoryInfo", "memory", n, 1);
	if (ret == NVML_SUCCESS)
		*memory = (nvmlMemory_t){.total = n[0] << 20, .free = n[0] << 20};
	return ret;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
	nvmlReturn_t ret = enter_gpu(device, "nvmlDeviceGetCudaComputeCapability");
	char v[VALUE] = "";
	if (ret == NVML_SUCCESS && (!get_gpu(device.handle->index, "cc", v) || sscanf(v, "%d.%d", major, minor) != 2))
		return NVML_ERROR_NOT_SUPPORTED;
	return ret;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
	unsigned long long n[1] = {0};
	nvmlReturn_t ret = facts(device, "nvmlDeviceGetMinorNumber", "minor", n, 1);
	*minor = (unsigned int)n[0];
	return ret;
}

#ifndef NO_nvmlDeviceGetMigMode
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
	unsigned long long n[2] = {0};
	nvmlReturn_t ret = facts(device, "nvmlDeviceGetMigMode", "mig", n, 2);
	*current = (unsigned int)n[0];
	*pending = (unsigned int)n[1];
	return ret;
}
#endif

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
	*count = 7;
	return enter_gpu(device, "nvmlDeviceGetMaxMigDeviceCount");
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig) {
	nvmlReturn_t ret = enter_gpu(device, "nvmlDeviceGetMigDeviceHandleByIndex");
	struct instance in[MAX_INSTANCES];
	if (ret != NVML_SUCCESS)
		return ret;
	if (index >= (unsigned int)read_instances(device.handle->index, in))
		return NVML_ERROR_NOT_FOUND;
	mig->handle = &migs[device.handle->index][index];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id) {
	nvmlReturn_t ret = enter_gpu(device, "nvmlDeviceGetGpuInstanceId");
	struct instance in[MAX_INSTANCES];
	if (ret != NVML_SUCCESS)
		return ret;
	if (device.handle->instance < 0 || device.handle->instance >= read_instances(device.handle->index, in))
		return NVML_ERROR_NOT_FOUND;
	*id = (unsigned int)in[device.handle->instance].id;
	return NVML_SUCCESS;
}

#ifndef NO_nvmlDeviceGetGpuInstanceById
nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *out) {
	nvmlReturn_t ret = enter_gpu(device, "nvmlDeviceGetGpuInstanceById");
	struct instance in[MAX_INSTANCES];
	if (ret != NVML_SUCCESS)
		return ret;
	int n = read_instances(device.handle->index, in);
	for (int k = 0; k < n; k++)
		if (in[k].id == (int)id && in[k].start >= 0) {
			out->handle = &instances[device.handle->index][k];
			return NVML_SUCCESS;
		}
	return NVML_ERROR_NOT_FOUND;
}
#endif

// The profile's ID is its slot plus 100: IDs are the driver's own.
nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t gi, nvmlGpuInstanceInfo_t *info) {
	struct instance in[MAX_INSTANCES];
	if (gi.handle == NULL || gi.handle->slot >= (unsigned int)read_instances(gi.handle->gpu, in))
		return NVML_ERROR_NOT_FOUND;
	struct instance *at = &in[gi.handle->slot];
	*info = (nvmlGpuInstanceInfo_t){.id = (unsigned int)at->id, .profileId = 100 + gi.handle->slot,
		.placement = {.start = (unsigned int)at->start, .size = (unsigned int)at->size}};
	info->device.handle = &gpus[gi.handle->gpu];
	return NVML_SUCCESS;
}

#ifndef NO_nvmlDeviceGetGpuInstanceProfileInfoV
nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int profile, nvmlGpuInstanceProfileInfo_v2_t *info) {
	nvmlReturn_t ret = enter_gpu(device, "nvmlDeviceGetGpuInstanceProfileInfoV");
	struct instance in[MAX_INSTANCES];
	if (ret != NVML_SUCCESS)
		return ret;
	if (info->version != nvmlGpuInstanceProfileInfo_v2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (profile >= (unsigned int)read_instances(device.handle->index, in))
		return NVML_ERROR_NOT_SUPPORTED;
	info->id = 100 + profile;
	info->instanceCount = 7;
	snprintf(info->name, sizeof info->name, "MIG %s", in[profile].profile);
	return NVML_SUCCESS;
}
#endif

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current, nvmlEnableState_t *pending) {
	unsigned long long n[2] = {0};
	nvmlReturn_t ret = facts(device, "nvmlDeviceGetEccMode", "ecc", n, 2);
	*current = (nvmlEnableState_t)n[0];
	*pending = (nvmlEnableState_t)n[1];
	return ret;
}

#ifndef NO_nvmlDeviceGetTotalEccErrors
nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter, unsigned long long *count) {
	(void)type, (void)counter;
	unsigned long long n[3] = {0};
	nvmlReturn_t ret = facts(device, "nvmlDeviceGetTotalEccErrors", "ecc", n, 3);
	*count = n[2];
	return ret;
}
#endif

#ifndef NO_nvmlDeviceGetSramEccErrorStatus
nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_t *status) {
	unsigned long long n[4] = {0};
	nvmlReturn_t ret = facts(device, "nvmlDeviceGetSramEccErrorStatus", "ecc", n, 4);
	status->bThresholdExceeded = (unsigned int)n[3];
	return ret;
}
#endif

#ifndef NO_nvmlDeviceGetRemappedRows
nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corr, unsigned int *unc, unsigned int *pending, unsigned int *failed) {
	unsigned long long n[4] = {0};
	nvmlReturn_t ret = facts(device, "nvmlDeviceGetRemappedRows", "rows", n, 4);
	*corr = (unsigned int)n[0], *unc = (unsigned int)n[1], *pending = (unsigned int)n[2], *failed = (unsigned int)n[3];
	return ret;
}
#endif

#ifndef NO_nvmlDeviceGetRetiredPagesPendingStatus
nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, nvmlEnableState_t *pending) {
	unsigned long long n[5] = {0};
	nvmlReturn_t ret = facts(device, "nvmlDeviceGetRetiredPagesPendingStatus", "rows", n, 5);
	*pending = (nvmlEnableState_t)n[4];
	return ret;
}
#endif

#ifndef NO_nvmlDeviceGetRepairStatus
nvmlReturn_t nvmlDeviceGetRepairStatus(nvmlDevice_t device, nvmlRepairStatus_t *status) {
	unsigned long long n[6] = {0};
	nvmlReturn_t ret = facts(device, "nvmlDeviceGetRepairStatus", "rows", n, 6);
	status->bTpcRepairPending = (unsigned int)n[5];
	return ret;
}
#endif

#ifndef NO_nvmlDeviceValidateInforom
nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t device) {
	unsigned long long n[1] = {0};
	nvmlReturn_t ret = facts(device, "nvmlDeviceValidateInforom", "inforom", n, 1);
	return ret == NVML_SUCCESS && !n[0] ? NVML_ERROR_CORRUPTED_INFOROM : ret;
}
#endif

#ifndef NO_nvmlDeviceGetNvLinkState
nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *active) {
	unsigned long long n[2] = {0};
	nvmlReturn_t ret = facts(device, "nvmlDeviceGetNvLinkState", "nvlink", n, 2);
	if (ret == NVML_SUCCESS && link >= n[1])
		return NVML_ERROR_INVALID_ARGUMENT;
	*active = link < n[0] ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
	return ret;
}
#endif

#ifndef NO_nvmlDeviceGetGpuFabricInfoV
nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info) {
	unsigned long long n[2] = {0};
	nvmlReturn_t ret = facts(device, "nvmlDeviceGetGpuFabricInfoV", "fabric", n, 2);
	info->state = (nvmlGpuFabricState_t)n[0];
	info->status = (nvmlReturn_t)n[1];
	return ret;
}
#endif

#ifndef NO_nvmlDeviceGetCurrPcieLinkWidth
nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *width) {
	unsigned long long n[1] = {0};
	nvmlReturn_t ret = facts(device, "nvmlDeviceGetCurrPcieLinkWidth", "pcie", n, 1);
	*width = (unsigned int)n[0];
	return ret;
}
#endif

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *width) {
	unsigned long long n[2] = {0};
	nvmlReturn_t ret = facts(device, "nvmlDeviceGetMaxPcieLinkWidth", "pcie", n, 2);
	*width = (unsigned int)n[1];
	return ret;
}

#ifndef NO_nvmlDeviceGetCurrentClocksEventReasons
nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *mask) {
	return facts(device, "nvmlDeviceGetCurrentClocksEventReasons", "throttle", mask, 1);
}
#endif

#ifndef NO_nvmlDeviceGetCurrentClocksThrottleReasons
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *mask) {
	return facts(device, "nvmlDeviceGetCurrentClocksThrottleReasons", "throttle", mask, 1);
}
#endif

#ifndef NO_nvmlDeviceGetFieldValues
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
	unsigned long long n[1] = {0};
	nvmlReturn_t ret = facts(device, "nvmlDeviceGetFieldValues", "recovery", n, 1);
	if (ret != NVML_SUCCESS && ret != NVML_ERROR_NOT_SUPPORTED)
		return ret;
	for (int i = 0; i < count; i++) {
		values[i].nvmlReturn = values[i].fieldId == NVML_FI_DEV_GET_GPU_RECOVERY_ACTION ? ret : NVML_ERROR_INVALID_ARGUMENT;
		values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
		values[i].value.uiVal = (unsigned int)n[0];
	}
	return NVML_SUCCESS;
}
#endif

#ifndef NO_nvmlDeviceGetPersistenceMode
nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
	unsigned long long n[1] = {0};
	nvmlReturn_t ret = facts(device, "nvmlDeviceGetPersistenceMode", "persistence", n, 1);
	*mode = (nvmlEnableState_t)n[0];
	return ret;
}
#endif

#ifndef NO_nvmlEventSetCreate
nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
	set->handle = &the_set;
	return enter("nvmlEventSetCreate");
}
#endif

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
	(void)set;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
	*types = nvmlEventTypeXidCriticalError;
	return enter_gpu(device, "nvmlDeviceGetSupportedEventTypes");
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
	(void)types, (void)set;
	return enter_gpu(device, "nvmlDeviceRegisterEvents");
}

// next_event finds the first event of the script that was not delivered.
static int next_event(nvmlEventData_t *data) {
	const char *path = getenv("KPGPU_FAKE_NVML");
	FILE *f = path == NULL ? NULL : fopen(path, "r");
	if (f == NULL)
		return 0;
	char line[VALUE + 128];
	int found = 0;
	while (!found && fgets(line, sizeof line, f) != NULL) {
		unsigned long id;
		int gpu, gi;
		unsigned long long xid;
		if (sscanf(line, "event=%lu %d %llu %d", &id, &gpu, &xid, &gi) != 4 || id <= last_event)
			continue;
		last_event = id;
		found = 1;
		*data = (nvmlEventData_t){.eventType = nvmlEventTypeXidCriticalError, .eventData = xid,
			.gpuInstanceId = gi < 0 ? 0xFFFFFFFF : (unsigned int)gi, .computeInstanceId = 0xFFFFFFFF};
		data->device.handle = gpu >= 0 && gpu < MAX_GPUS ? &gpus[gpu] : NULL;
	}
	fclose(f);
	return found;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout) {
	(void)set;
	nvmlReturn_t ret = enter("nvmlEventSetWait_v2");
	for (unsigned int waited = 0; ret == NVML_SUCCESS; waited += 10) {
		pthread_mutex_lock(&mutex);
		int found = next_event(data);
		pthread_mutex_unlock(&mutex);
		if (found)
			return NVML_SUCCESS;
		if (waited >= timeout)
			return NVML_ERROR_TIMEOUT;
		nap(10);
	}
	return ret;
}
