package cloudprovider

import (
	"fmt"
	"strings"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
)

// view is how the instance types look from a NodePool. Views of equal key show
// equal types.
type view struct {
	key string
	// pool is nil for NodePools in none.
	pool *pools.Pool
	// predict says that GPU types get the labels that GPU feature discovery will set.
	predict bool
	// settled are the predicted keys that the NodePool itself decides; they are left
	// alone. Without prediction that includes keys of its requirements: Karpenter
	// then treats them as labels of the user's own.
	settled map[string]bool
	// layout is the only layout allowed, where the NodePool's template sets
	// nvidia.com/mig.config; empty for all.
	layout string
}

// viewOf returns the view of a NodePool. A nil NodePool settles nothing.
func (d *decorator) viewOf(pool *pools.Pool, nodePool *karpv1.NodePool) *view {
	v := &view{pool: pool, predict: pool != nil || d.PredictAll, settled: map[string]bool{}}
	if nodePool != nil {
		v.settle(nodePool)
	}
	var key strings.Builder
	fmt.Fprintf(&key, "predict=%t", v.predict)
	if pool != nil {
		fmt.Fprintf(&key, " pool=%s@%s layout=%s", pool.Name(), pool.Version, v.layout)
	}
	for _, k := range predictedKeys {
		if v.settled[k] {
			key.WriteString(" " + k)
		}
	}
	for _, k := range ownKeys {
		if v.settled[k] {
			key.WriteString(" " + k)
		}
	}
	v.key = key.String()
	return v
}

func (v *view) settle(nodePool *karpv1.NodePool) {
	template := nodePool.Spec.Template
	for key := range template.Labels {
		if _, ours := absent[key]; ours && (v.pool == nil || isPredicted(key)) {
			v.settled[key] = true
		}
	}
	if v.pool != nil {
		v.layout = template.Labels[v1alpha1.MIGConfigLabelKey]
	}
	if v.predict {
		return
	}
	for _, r := range template.Spec.Requirements {
		if _, ours := absent[r.Key]; ours {
			v.settled[r.Key] = true
		}
	}
}
