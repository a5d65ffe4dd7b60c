// Package prediction compares the labels that GPU feature discovery has written on
// a node with those that were predicted when the node was launched.
//
// A difference is told in an event and a metric, and nothing else happens: the node
// is what it is, and replacing it would bring the same again. Karpenter goes on to
// hold the NodeClaim's labels, which are the predicted ones, against the catalogue,
// so that it does not drift either. The way out is a correction of the catalogue.
package prediction

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	nodeutils "sigs.k8s.io/karpenter/pkg/utils/node"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider"
)

// Controller compares labels.
type Controller struct {
	kubeClient client.Client
	recorder   events.Recorder

	mu   sync.Mutex
	told map[types.UID]map[string]string // by node: the differing labels that were told
}

// NewController returns a controller that tells of labels which differ.
func NewController(kubeClient client.Client, recorder events.Recorder) *Controller {
	return &Controller{kubeClient: kubeClient, recorder: recorder, told: map[types.UID]map[string]string{}}
}

// Name is the controller's name in logs and metrics.
func (c *Controller) Name() string { return "node.prediction" }

// Reconcile tells of each differing label of a node once.
func (c *Controller) Reconcile(ctx context.Context, node *corev1.Node) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	// Until the node is initialized its software is still at work, and mig-manager
	// changes labels again while it applies a layout.
	if state := node.Labels[v1alpha1.MIGConfigStateLabelKey]; node.Labels[karpv1.NodeInitializedLabelKey] != "true" || state != "" && state != "success" {
		return reconcile.Result{}, nil
	}
	if !node.DeletionTimestamp.IsZero() {
		c.forget(node)
		return reconcile.Result{}, nil
	}
	claim, err := nodeutils.NodeClaimForNode(ctx, c.kubeClient, node)
	if err != nil {
		return reconcile.Result{}, nodeutils.IgnoreDuplicateNodeClaimError(nodeutils.IgnoreNodeClaimNotFoundError(err))
	}
	differing := Differing(claim, node)
	for _, key := range c.news(node, differing) {
		c.recorder.Publish(DiffersEvent(node, key, claim.Labels[key]))
		MismatchesTotal.Inc(map[string]string{
			labelKey: key, predictedKey: claim.Labels[key], actualKey: node.Labels[key], instanceTypeKey: node.Labels[corev1.LabelInstanceTypeStable],
		})
	}
	return reconcile.Result{}, nil
}

// Differing returns the node's values of labels that were predicted otherwise.
// Labels that the node does not have are not yet written, or nobody writes them.
func Differing(claim *karpv1.NodeClaim, node *corev1.Node) map[string]string {
	differing := map[string]string{}
	for _, key := range cloudprovider.PredictedLabelKeys() {
		predicted, ok := claim.Labels[key]
		if actual, written := node.Labels[key]; ok && written && actual != predicted {
			differing[key] = actual
		}
	}
	return differing
}

// news are the keys whose difference has not been told, sorted.
func (c *Controller) news(node *corev1.Node, differing map[string]string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(differing)) {
		if c.told[node.UID][key] != differing[key] {
			keys = append(keys, key)
		}
	}
	c.told[node.UID] = differing
	if len(differing) == 0 {
		delete(c.told, node.UID)
	}
	return keys
}

func (c *Controller) forget(node *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.told, node.UID)
}

// Register adds the controller to a manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&corev1.Node{}, builder.WithPredicates(predicate.And(predicate.NewPredicateFuncs(gpuNode), predicate.Or(predicate.LabelChangedPredicate{}, deletion)))).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}

// deletion passes the update that begins a node's end, which changes no label.
var deletion = predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetDeletionTimestamp() != nil })

func gpuNode(o client.Object) bool {
	labels := o.GetLabels()
	if labels[karpv1.NodePoolLabelKey] == "" {
		return false
	}
	for key := range labels {
		if strings.HasPrefix(key, string(v1alpha1.ResourceGPU)+".") {
			return true
		}
	}
	return false
}
