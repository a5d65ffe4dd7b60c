package prepull

import (
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
)

// Report says which nodes hold what, after Sync.
type Report struct {
	held     map[string]map[string]bool // by node, then image
	failures map[string]string          // by image
}

// Holds reports whether a node holds all of the images. Without images it does.
func (r *Report) Holds(node string, images []string) bool {
	return lo.EveryBy(images, func(i string) bool { return r.held[node][i] })
}

// Failure says why the first of some images that cannot be pulled cannot, empty if all can.
func (r *Report) Failure(images []string) string {
	for _, i := range images {
		if f := r.failures[i]; f != "" {
			return f
		}
	}
	return ""
}

// readNode notes what the node lists, and returns what it does not.
func (r *Report) readNode(need *Need) (missing []string) {
	listed := map[string]bool{}
	for _, i := range need.Node.Status.Images {
		for _, name := range i.Names {
			listed[canonical(name)] = true
		}
	}
	held := map[string]bool{}
	for _, i := range need.Images {
		held[i] = listed[canonical(i)]
		if !held[i] {
			missing = append(missing, i)
		}
	}
	r.held[need.Node.Name] = held
	return missing
}

// readPod notes what a pod has pulled and what it cannot pull, and returns whether it is
// pulling. What cannot be pulled is tried again by the kubelet now and then: it takes no turn
// from other nodes.
func (r *Report) readPod(node string, pod *corev1.Pod) (pulling bool) {
	for i := range pod.Spec.Containers {
		image := pod.Spec.Containers[i].Image
		status, ok := lo.Find(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == pod.Spec.Containers[i].Name })
		switch {
		case ok && pulled(status):
			r.held[node][image] = true
			continue
		case ok && status.State.Waiting != nil && slices.Contains(pullErrors, status.State.Waiting.Reason):
			if r.failures[image] == "" {
				r.failures[image] = fmt.Sprintf("pulling %s fails (%s: %s); correct images or imagePullSecrets", image, status.State.Waiting.Reason, status.State.Waiting.Message)
			}
			continue
		}
		pulling = true
	}
	return pulling
}

// pullErrors are the reasons for which a kubelet does not get an image.
var pullErrors = []string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"}

// startErrors are those for which it does not start a container whose image it has.
var startErrors = []string{"CreateContainerError", "RunContainerError", "CrashLoopBackOff"}

// pulled reports whether the kubelet came as far as to start the container.
func pulled(s corev1.ContainerStatus) bool {
	return s.State.Running != nil || s.State.Terminated != nil || s.State.Waiting != nil && slices.Contains(startErrors, s.State.Waiting.Reason)
}

// canonical is the name under which a container runtime knows an image: with the registry
// and the tag that a short name leaves out.
func canonical(image string) string {
	first, _, found := strings.Cut(image, "/")
	switch {
	case !found:
		image = "docker.io/library/" + image
	case !strings.ContainsAny(first, ".:") && first != "localhost":
		image = "docker.io/" + image
	}
	last := image[strings.LastIndex(image, "/")+1:]
	if !strings.ContainsAny(last, ":@") {
		image += ":latest"
	}
	return image
}
