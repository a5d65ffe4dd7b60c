package prepull

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestCanonical(t *testing.T) {
	for image, want := range map[string]string{
		"busybox":                              "docker.io/library/busybox:latest",
		"busybox:1.37":                         "docker.io/library/busybox:1.37",
		"team/model":                           "docker.io/team/model:latest",
		"registry.example.com/team/model:v3":   "registry.example.com/team/model:v3",
		"registry:5000/model":                  "registry:5000/model:latest",
		"localhost/model":                      "localhost/model:latest",
		"nvcr.io/nvidia/cuda@sha256:0123":      "nvcr.io/nvidia/cuda@sha256:0123",
		"docker.io/library/busybox:latest":     "docker.io/library/busybox:latest",
		"registry.example.com:443/a/b/c/model": "registry.example.com:443/a/b/c/model:latest",
	} {
		if got := canonical(image); got != want {
			t.Errorf("%s: got %s, want %s", image, got, want)
		}
	}
}

func TestPulled(t *testing.T) {
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	for name, tc := range map[string]struct {
		state corev1.ContainerState
		want  bool
	}{
		"nothing yet":                       {corev1.ContainerState{}, false},
		"being created":                     {waiting("ContainerCreating"), false},
		"pulling fails":                     {waiting("ErrImagePull"), false},
		"pulling is put off":                {waiting("ImagePullBackOff"), false},
		"a secret is missing":               {waiting("CreateContainerConfigError"), false},
		"starting fails":                    {waiting("RunContainerError"), true},
		"starting fails at the runtime":     {corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "StartError"}}, true},
		"it runs, as on simulated kubelets": {corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, true},
	} {
		if got := pulled(corev1.ContainerStatus{State: tc.state}); got != tc.want {
			t.Errorf("%s: got %t, want %t", name, got, tc.want)
		}
	}
}
