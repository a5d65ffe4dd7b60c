package provisioning

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	stock "sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	scheduler "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

// Space is where one capacity buffer stands after a round of scheduling.
type Space struct {
	// Nodes are those that hold some of it, by NodeClaim. Nodes that are launched and not
	// registered are among them, with no name.
	Nodes []HeldNode
	// Launching is how many of its virtual pods the round launches nodes for.
	Launching int
	// Waiting is how many have no place, and Why is the reason of the first of them: a
	// Refusal where a rule of the pool holds it back.
	Waiting int
	Why     error
}

// HeldNode is a node that holds space for a capacity buffer.
type HeldNode struct {
	// Node is the name of the node, empty until it registers.
	Node string
	// NodeClaim is the name of its NodeClaim, empty for a node that is not Karpenter's.
	NodeClaim string
	// Pods is how many virtual pods stand on it, and Room how many more of them would.
	Pods, Room int
	// GPUs are the physical GPUs that they take, in parts where these are shared.
	GPUs float64
	// Price is what they pay for the node per hour: their share among all that use it,
	// zero where nobody knows the node's price.
	Price v1alpha1.Price
}

// Spaces remembers where the last round of scheduling put the space of every capacity
// buffer. A nil Spaces remembers nothing. Safe for concurrent use.
type Spaces struct {
	mu      sync.Mutex
	rounds  int
	spaces  map[types.NamespacedName]Space
	nodes   map[string]bool // by name
	coming  map[string]bool // those without a name yet, by NodeClaim
	changes chan event.GenericEvent
	// launching says that the last round launched nodes for space.
	launching bool
}

// NewSpaces returns an empty record.
func NewSpaces() *Spaces {
	return &Spaces{spaces: map[types.NamespacedName]Space{}, nodes: map[string]bool{}, changes: make(chan event.GenericEvent, 1)}
}

// Changes gets an event, with no object that matters, when what Of says has changed. Events
// that nobody takes are merged into one. There is one channel, for one reader.
func (s *Spaces) Changes() <-chan event.GenericEvent { return s.changes }

// Of returns the space of a buffer by its name. ok is false before the first round; a buffer
// without virtual pods has an empty Space.
func (s *Spaces) Of(buffer types.NamespacedName) (space Space, ok bool) {
	if s == nil {
		return Space{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spaces[buffer], s.rounds > 0
}

// On reports whether a node of this name holds space.
func (s *Spaces) On(node string) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[node]
}

// Awaits reports whether a node that has registered is news: the last round launched nodes
// for space and could not tell yet which hold it, or knew this one by its NodeClaim alone.
func (s *Spaces) Awaits(node *corev1.Node) bool {
	if s == nil || node.Labels[karpv1.NodeRegisteredLabelKey] != "true" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.launching || slices.ContainsFunc(node.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == "NodeClaim" && s.coming[r.Name] })
}

// Note replaces what is known by the result of a round.
func (s *Spaces) Note(spaces map[types.NamespacedName]Space) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := s.rounds == 0 || !reflect.DeepEqual(s.spaces, spaces) //nolint:govet // errors compared in depth: one change too many wakes a reader, no more
	s.rounds++
	s.spaces = spaces
	s.index()
	if changed {
		select {
		case s.changes <- event.GenericEvent{Object: &v1alpha1.GPUPool{}}:
		default: // one is waiting already
		}
	}
}

func (s *Spaces) index() {
	s.nodes, s.coming, s.launching = map[string]bool{}, map[string]bool{}, false
	for _, space := range s.spaces {
		s.launching = s.launching || space.Launching > 0
		for _, n := range space.Nodes {
			if n.Node == "" {
				s.coming[n.NodeClaim] = true
				continue
			}
			s.nodes[n.Node] = true
		}
	}
}

// spacesOf reads the space of all buffers off the results of a round.
func (r *round) spacesOf(results scheduler.Results) map[types.NamespacedName]Space {
	out := map[types.NamespacedName]Space{}
	for _, n := range results.ExistingNodes {
		for key, pods := range virtualPods(n.Pods) {
			space := out[key]
			space.Nodes = append(space.Nodes, r.heldNode(n, pods))
			out[key] = space
		}
	}
	for _, c := range results.NewNodeClaims {
		for key, pods := range virtualPods(c.Pods) {
			space := out[key]
			space.Launching += len(pods)
			out[key] = space
		}
	}
	first := map[types.NamespacedName]string{}
	for pod, err := range results.PodErrors {
		if key, ok := bufferOf(pod); ok {
			space := out[key]
			space.Waiting++
			if was, ok := first[key]; !ok || pod.Name < was {
				first[key], space.Why = pod.Name, err
			}
			out[key] = space
		}
	}
	for key, space := range out {
		slices.SortFunc(space.Nodes, func(a, b HeldNode) int { return strings.Compare(a.NodeClaim+"/"+a.Node, b.NodeClaim+"/"+b.Node) })
		out[key] = space
	}
	return out
}

// bufferOf names the buffer that a virtual pod belongs to; ok is false for other pods.
func bufferOf(pod *corev1.Pod) (key types.NamespacedName, ok bool) {
	if !stock.IsVirtualPod(pod) {
		return key, false
	}
	return types.NamespacedName{Namespace: pod.Annotations[autoscalingv1beta1.BufferNamespaceAnnotation], Name: pod.Annotations[autoscalingv1beta1.BufferNameAnnotation]}, true
}

// virtualPods are the virtual pods among some, by buffer.
func virtualPods(pods []*corev1.Pod) map[types.NamespacedName][]*corev1.Pod {
	out := map[types.NamespacedName][]*corev1.Pod{}
	for _, pod := range pods {
		if key, ok := bufferOf(pod); ok {
			out[key] = append(out[key], pod)
		}
	}
	return out
}

func (r *round) heldNode(n *scheduler.ExistingNode, pods []*corev1.Pod) HeldNode {
	out := HeldNode{Pods: len(pods), Room: roomFor(n, pods[0])}
	if n.Node != nil {
		out.Node = n.Node.Name
	}
	if n.NodeClaim == nil {
		return out
	}
	out.NodeClaim = n.NodeClaim.Name
	units, all := gpuUnits(pods), gpuAmount(n.Allocatable())
	if all > 0 {
		whole := r.chargeOfNode(n, r.pools[n.Labels()[v1alpha1.PoolLabelKey]])
		out.GPUs = float64(whole.gpus) * float64(units) / float64(all)
		out.Price = share(whole.price, units, unitsInUse(n))
	}
	return out
}

// chargeOfNode is what a node costs and has; nothing for one that is not Karpenter's.
func (r *round) chargeOfNode(n *scheduler.ExistingNode, p *pool) (out charge) {
	if n.NodeClaim == nil || r.Ledger == nil {
		return charge{}
	}
	var partitioning *v1alpha1.Partitioning
	if p != nil {
		partitioning = p.Spec.Partitioning
	}
	out, _ = r.Ledger.chargeOfClaim(n.NodeClaim, r.seen.types[n.Labels()[karpv1.NodePoolLabelKey]], partitioning)
	return out
}

// share is the part of a price that some of the units in use pay.
func share(price v1alpha1.Price, units, inUse int64) v1alpha1.Price {
	if units >= inUse || inUse <= 0 {
		return price
	}
	return v1alpha1.Price(math.Ceil(float64(price) * float64(units) / float64(inUse)))
}

// unitsInUse are the units of GPU resources that pods and virtual pods take on a node.
func unitsInUse(n *scheduler.ExistingNode) int64 {
	return gpuAmount(n.PodRequests()) + gpuUnits(n.Pods)
}

func gpuUnits(pods []*corev1.Pod) int64 { return gpuAmount(resources.RequestsForPods(pods...)) }

func gpuAmount(list corev1.ResourceList) (units int64) {
	for name := range list {
		if isGPU(name) {
			units += quantity(list, name)
		}
	}
	return units
}

// roomFor is how many more pods like this one have a place on the node, by GPUs alone.
func roomFor(n *scheduler.ExistingNode, pod *corev1.Pod) int {
	left := resources.Subtract(n.Available(), resources.RequestsForPods(n.Pods...))
	room := int64(0)
	for name, q := range resources.RequestsForPods(pod) {
		if isGPU(name) && q.Sign() > 0 {
			fits := max(0, quantity(left, name)/q.Value())
			if room == 0 || fits < room {
				room = fits
			}
			if fits == 0 {
				return 0
			}
		}
	}
	return int(room)
}
