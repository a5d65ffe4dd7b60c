package prepull

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

const (
	// pullerKey marks the pods.
	pullerKey = v1alpha1.Group + "/image-puller"
	// imagesKey holds a digest of what a pod pulls and with which secrets.
	imagesKey = v1alpha1.Group + "/images"
	// nothing is a command that no image has.
	nothing = "/karpenter-gpu/pulls-and-runs-nothing"
	// nobody is a user without rights, as whom nothing would run.
	nobody = 65534
)

// pod pulls to a node. It names the node itself: no scheduler has to find it room, and it
// asks for none.
func (p *Puller) pod(pool string, need *Need) *corev1.Pod {
	images := slices.Sorted(slices.Values(need.Images))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   p.namespace,
			Name:        "image-puller-" + hash(pool, string(need.Node.UID), digest(need)),
			Labels:      map[string]string{pullerKey: "true", v1alpha1.PoolLabelKey: pool, "app.kubernetes.io/managed-by": "karpenter-gpu"},
			Annotations: map[string]string{imagesKey: digest(need)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: need.Node.Name, UID: need.Node.UID,
			}},
		},
		Spec: corev1.PodSpec{
			NodeName:                      need.Node.Name,
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: lo.ToPtr(int64(0)),
			AutomountServiceAccountToken:  lo.ToPtr(false),
			EnableServiceLinks:            lo.ToPtr(false),
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: lo.ToPtr(true), RunAsUser: lo.ToPtr(int64(nobody)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			ImagePullSecrets: lo.Map(slices.Sorted(slices.Values(need.Secrets)), func(name string, _ int) corev1.LocalObjectReference {
				return corev1.LocalObjectReference{Name: name}
			}),
		},
	}
	for i, image := range images {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: fmt.Sprintf("image-%d", i), Image: image, Command: []string{nothing}, ImagePullPolicy: corev1.PullIfNotPresent,
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: lo.ToPtr(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		})
	}
	return pod
}

// digest changes with what a node needs.
func digest(need *Need) string {
	return hash(append(slices.Sorted(slices.Values(need.Images)), append([]string{""}, slices.Sorted(slices.Values(need.Secrets))...)...)...)
}

func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:8])
}
