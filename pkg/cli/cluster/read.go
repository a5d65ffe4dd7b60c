package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/awslabs/operatorpkg/status"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/catalogprovider"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
)

// page bounds one answer of the API server.
const page = 500

// Read lists everything that a plan is made from, by kind, then by namespace and name.
func Read(ctx context.Context, c client.Reader) (*manifest.Set, error) {
	s := &manifest.Set{}
	for _, step := range []func(context.Context, client.Reader, *manifest.Set) error{readNodePools, readGPUPools, readNodeClasses, readObjects, readPods} {
		if err := step(ctx, c, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// list reads all pages of a kind. A kind that the cluster does not have is absent and
// not an error.
func list[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c client.Reader, what client.ObjectList, items func() []T, opts ...client.ListOption) ([]P, error) {
	var out []P
	for {
		if err := c.List(ctx, what, append(opts, client.Limit(page), client.Continue(what.GetContinue()))...); err != nil {
			if meta.IsNoMatchError(err) {
				return nil, nil
			}
			return nil, fmt.Errorf("listing %T, %w", what, err)
		}
		for _, item := range items() {
			out = append(out, P(&item))
		}
		if what.GetContinue() == "" {
			break
		}
	}
	slices.SortFunc(out, func(a, b P) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return out, nil
}

func readNodePools(ctx context.Context, c client.Reader, s *manifest.Set) error {
	l := &karpv1.NodePoolList{}
	nodePools, err := list(ctx, c, l, func() []karpv1.NodePool { return l.Items })
	if err != nil {
		return err
	}
	for _, np := range nodePools {
		ready := np.StatusConditions().Get(status.ConditionReady)
		switch {
		case !np.DeletionTimestamp.IsZero():
			s.Ignored = append(s.Ignored, ignored("NodePool.karpenter.sh", np, "it is being deleted"))
		case ready == nil || !ready.IsTrue():
			s.Ignored = append(s.Ignored, ignored("NodePool.karpenter.sh", np, "it is not Ready, so that Karpenter passes it over"))
		case np.Spec.Replicas != nil:
			s.Ignored = append(s.Ignored, ignored("NodePool.karpenter.sh", np, "it is static: its nodes do not depend on pods"))
		default:
			s.NodePools = append(s.NodePools, np)
		}
	}
	return nil
}

func ignored(kind string, o client.Object, reason string) manifest.Ignored {
	name := o.GetName()
	if o.GetNamespace() != "" {
		name = o.GetNamespace() + "/" + name
	}
	return manifest.Ignored{Kind: kind, Name: name, Reason: reason}
}

func readGPUPools(ctx context.Context, c client.Reader, s *manifest.Set) error {
	l := &v1alpha1.GPUPoolList{}
	gpuPools, err := list(ctx, c, l, func() []v1alpha1.GPUPool { return l.Items })
	for _, p := range gpuPools {
		if invalid := p.RuntimeValidate(pools.Names{}); invalid != nil {
			s.Ignored = append(s.Ignored, ignored("GPUPool."+v1alpha1.Group, p, "it is invalid, so that its NodePools are plain Karpenter: "+invalid.Error()))
			continue
		}
		s.GPUPools = append(s.GPUPools, p)
	}
	return err
}

func readNodeClasses(ctx context.Context, c client.Reader, s *manifest.Set) error {
	l := &unstructured.UnstructuredList{}
	gvk := catalogprovider.NodeClassGVK
	gvk.Kind += "List"
	l.SetGroupVersionKind(gvk)
	classes, err := list(ctx, c, l, func() []unstructured.Unstructured { return l.Items })
	for _, u := range classes {
		class, parseErr := catalogprovider.ParseNodeClass(u)
		if parseErr != nil {
			return fmt.Errorf("EC2NodeClass %s: %w", u.GetName(), parseErr)
		}
		s.NodeClasses = append(s.NodeClasses, class)
	}
	return err
}

// readPods parts the pods that Karpenter would find a node for from those that run.
func readPods(ctx context.Context, c client.Reader, s *manifest.Set) error {
	l := &corev1.PodList{}
	pods, err := list(ctx, c, l, func() []corev1.Pod { return l.Items })
	known := nodesKnown(s.Objects)
	for _, p := range pods {
		switch {
		case podutils.IsTerminal(p):
		case podutils.IsScheduled(p) && !known[p.Spec.NodeName]:
			s.Ignored = append(s.Ignored, ignored("Pod", p, "Karpenter does not know its node "+p.Spec.NodeName))
		case podutils.IsScheduled(p):
			s.Objects = append(s.Objects, p)
		case podutils.IsProvisionable(p):
			p.ResourceVersion = "" // it is new to the cluster in memory
			if p.Annotations == nil {
				p.Annotations = map[string]string{}
			}
			p.Annotations[manifest.WorkloadAnnotation] = owner(p)
			s.Pods = append(s.Pods, p)
		}
	}
	return err
}

// nodesKnown are the nodes that Karpenter's state takes in: of its own nodes those that
// the cloud has named and whose type is known.
func nodesKnown(objects []client.Object) map[string]bool {
	out := map[string]bool{}
	for _, o := range objects {
		n, ok := o.(*corev1.Node)
		if !ok {
			continue
		}
		started := n.Labels[corev1.LabelInstanceTypeStable] != "" || n.Labels[karpv1.NodeInitializedLabelKey] != ""
		out[n.Name] = n.Labels[karpv1.NodePoolLabelKey] == "" || n.Spec.ProviderID != "" && started
	}
	return out
}

// owner names what created a pod, or the pod itself.
func owner(p *corev1.Pod) string {
	if o := metav1.GetControllerOf(p); o != nil {
		return fmt.Sprintf("%s %s/%s", o.Kind, p.Namespace, o.Name)
	}
	return fmt.Sprintf("Pod %s/%s", p.Namespace, p.Name)
}

func readObjects(ctx context.Context, c client.Reader, s *manifest.Set) error {
	daemonSets, volumes, claims := &appsv1.DaemonSetList{}, &corev1.PersistentVolumeList{}, &corev1.PersistentVolumeClaimList{}
	classes, namespaces := &storagev1.StorageClassList{}, &corev1.NamespaceList{}
	csiNodes, nodes, nodeClaims := &storagev1.CSINodeList{}, &corev1.NodeList{}, &karpv1.NodeClaimList{}
	for _, read := range []func() error{
		func() error {
			return collect(ctx, c, s, daemonSets, func() []appsv1.DaemonSet { return daemonSets.Items })
		},
		func() error {
			return collect(ctx, c, s, volumes, func() []corev1.PersistentVolume { return volumes.Items })
		},
		func() error {
			return collect(ctx, c, s, claims, func() []corev1.PersistentVolumeClaim { return claims.Items })
		},
		func() error {
			return collect(ctx, c, s, classes, func() []storagev1.StorageClass { return classes.Items })
		},
		func() error {
			return collect(ctx, c, s, namespaces, func() []corev1.Namespace { return namespaces.Items })
		},
		func() error {
			return collect(ctx, c, s, csiNodes, func() []storagev1.CSINode { return csiNodes.Items })
		},
		func() error { return collect(ctx, c, s, nodes, func() []corev1.Node { return nodes.Items }) },
		func() error {
			return collect(ctx, c, s, nodeClaims, func() []karpv1.NodeClaim { return nodeClaims.Items })
		},
	} {
		if err := read(); err != nil {
			return err
		}
	}
	return nil
}

func collect[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c client.Reader, s *manifest.Set, what client.ObjectList, items func() []T) error {
	found, err := list[T, P](ctx, c, what, items)
	for _, o := range found {
		s.Objects = append(s.Objects, o)
	}
	return err
}
