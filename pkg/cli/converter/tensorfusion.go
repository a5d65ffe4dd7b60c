package converter

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/catalogprovider"
)

// Keys of TensorFusion's requirements that have another name on AWS.
var renamed = map[string]string{
	tensorFusionGroup + "/gpu-instance-family": catalogprovider.Group + "/instance-family",
	tensorFusionGroup + "/gpu-instance-size":   catalogprovider.Group + "/instance-size",
}

const (
	vendorKey       = tensorFusionGroup + "/gpu-vendor"
	manufacturerKey = catalogprovider.Group + "/instance-gpu-manufacturer"
	nodeManager     = "nodeManagerConfig."
	provisioner     = nodeManager + "nodeProvisioner."
	// defaultCompaction is TensorFusion's default of nodeCompaction.period.
	defaultCompaction = "5m"
	// assumedClass is the EC2NodeClass of a pool that names none.
	assumedClass = "default"
)

// tensorFusionCluster converts the pools of a cluster, each under the name that
// TensorFusion gives it.
func (c *conversion) tensorFusionCluster(ctx context.Context, d manifest.Document) error {
	s := newSource(d)
	pools, _ := take[[]any](s, "spec.gpuPools")
	for _, key := range []string{"labels", "annotations"} {
		if given, ok := metadata(d.Object)[key].(map[string]any); ok {
			s.lose("metadata."+key, "each pool becomes an object of its own; put %s on those that need it", strings.Join(slices.Sorted(maps.Keys(given)), ", "))
		}
	}
	s.drop("spec.computingVendor", "Karpenter reaches the cloud with the role of its own ServiceAccount; put what launches need into the EC2NodeClass")
	for i, p := range pools {
		definition, ok := p.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: %s: spec.gpuPools[%d]: not an object", d.From, s.object, i)
		}
		inner := &source{object: s.object, from: d.From, fields: definition, prefix: fmt.Sprintf("spec.gpuPools[%d].", i)}
		poolName := d.Object.GetName() + "-" + takeText(inner, "name")
		inner.drop("isDefault", "which pool a workload goes to is up to its own selectors")
		spec, _ := take[map[string]any](inner, "specTemplate")
		losses, err := inner.finish()
		if err != nil {
			return err
		}
		pool := &source{object: s.object, from: d.From, fields: spec, prefix: inner.prefix + "specTemplate.", losses: losses}
		if err := c.pool(ctx, pool, map[string]any{"name": poolName}); err != nil {
			return err
		}
	}
	losses, err := s.finish()
	c.unconverted = append(c.unconverted, losses...)
	return err
}

// tensorFusionPool converts a GPUPool of TensorFusion.
func (c *conversion) tensorFusionPool(ctx context.Context, d manifest.Document) error {
	s := newSource(d)
	spec, _ := take[map[string]any](s, "spec")
	losses, err := s.finish()
	if err != nil {
		return err
	}
	inner := &source{object: s.object, from: d.From, fields: spec, prefix: "spec.", losses: losses}
	return c.pool(ctx, inner, metadata(d.Object))
}

// pool converts the specification of one pool into a GPUPool, and into a NodePool where
// TensorFusion would have launched nodes.
func (c *conversion) pool(ctx context.Context, s *source, meta map[string]any) error {
	if s.fields == nil {
		s.fields = map[string]any{}
	}
	spec := map[string]any{}
	name := fmt.Sprint(meta["name"])
	mode := takeText(s, nodeManager+"provisioningMode")
	var nodePool map[string]any
	if mode == "Karpenter" || mode == "Provisioned" {
		nodePool = c.provisioned(s, name)
		if err := c.capacity(ctx, s, nodePool, spec); err != nil {
			return err
		}
	} else {
		s.lose(nodeManager+"provisioningMode", "AutoSelect takes nodes that others launch; let their NodePool join: kubectl label nodepool NODEPOOL %s=%s", v1alpha1.PoolLabelKey, name)
		s.drop(nodeManager+"nodeProvisioner", "has no meaning with provisioningMode AutoSelect")
		s.drop("capacityConfig.maxResources", "how much it is in GPUs depends on the nodes; set spec.limits.gpus")
		s.drop("capacityConfig.warmResources", "how much it is in GPUs depends on the nodes; add an entry to spec.warm")
	}
	for _, gone := range staying {
		s.drop(gone.field, "%s", gone.message)
	}
	losses, err := s.finish()
	c.result.Objects = append(c.result.Objects, Object{
		Unstructured: &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": "GPUPool", "metadata": maps.Clone(meta), "spec": spec}},
		From:         s.from, Losses: losses,
	})
	if nodePool != nil {
		c.result.Objects = append(c.result.Objects, Object{Unstructured: &unstructured.Unstructured{Object: nodePool}, From: s.from})
	}
	return err
}

// staying are parts of TensorFusion that it goes on doing, or that nobody does.
var staying = []struct{ field, message string }{
	{"defaultUsingLocalGPU", "where a workload's GPU is stays TensorFusion's to decide"},
	{"capacityConfig.minResources", "there is no least capacity; hold so much spare with an entry of spec.warm, or keep static nodes with spec.replicas of the NodePool"},
	{"capacityConfig.oversubscription", "TensorFusion goes on overselling the GPUs of these nodes; spec.partitioning.timeSlicing and mps are other ways to share them, and exclude it"},
	{"qosConfig", "quality of service and its prices stay TensorFusion's"},
	{"componentConfig", "TensorFusion's components stay its own"},
	{"schedulingConfigTemplate", "TensorFusion's scheduler stays its own"},
	{nodeManager + "defaultVendor", "nodes are NVIDIA's"},
	{nodeManager + "multiVendorNodeSelector", "other vendors' GPUs are not handled"},
	{nodeManager + "nodeSelector", "nodes join by the label of their NodePool"},
	{nodeManager + "nodePoolRollingUpdatePolicy", "it paces updates of TensorFusion's components, which stay its own; spec.disruption.budgets of the NodePool pace the replacement of nodes"},
}

// provisioned makes the NodePool from what TensorFusion would have written into NodeClaims.
func (c *conversion) provisioned(s *source, name string) map[string]any {
	template := map[string]any{}
	labels, annotations := s.labels(provisioner+"gpuNodeLabels"), map[string]any{}
	if taken, ok := take[map[string]any](s, provisioner+"gpuNodeAnnotations"); ok {
		annotations = taken
	}
	meta := map[string]any{}
	put(meta, "labels", labels, len(labels) > 0)
	put(meta, "annotations", annotations, len(annotations) > 0)
	put(template, "metadata", meta, len(meta) > 0)
	class := s.karpenterClass()
	spec := map[string]any{"nodeClassRef": class, "requirements": s.requirements(class["group"] == catalogprovider.Group), "expireAfter": "Never"}
	if taints, ok := take[[]any](s, provisioner+"gpuTaints"); ok && len(taints) > 0 {
		for _, t := range taints {
			if taint, ok := t.(map[string]any); ok && taint["effect"] == nil {
				taint["effect"] = "NoSchedule" // TensorFusion's default
			}
		}
		spec["taints"] = taints
	}
	template["spec"] = spec
	for _, field := range []string{"cpuRequirements", "cpuTaints", "cpuNodeLabels"} {
		s.drop(provisioner+field, "nodes without GPUs are for a NodePool of their own")
	}
	after := takeText(s, nodeManager+"nodeCompaction.period")
	if after == "" {
		after = defaultCompaction
	}
	return map[string]any{
		"apiVersion": karpenterGroup + "/" + version, "kind": "NodePool",
		"metadata": map[string]any{"name": name, "labels": map[string]any{v1alpha1.PoolLabelKey: name}},
		"spec": map[string]any{
			"template": template,
			// TensorFusion removes nodes that are empty and forbids Karpenter to move pods.
			"disruption": map[string]any{"consolidationPolicy": string(karpv1.ConsolidationPolicyWhenEmpty), "consolidateAfter": after},
		},
	}
}

// labels takes labels, without those that Karpenter refuses in a NodePool.
func (s *source) labels(path string) map[string]any {
	labels, _ := take[map[string]any](s, path)
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if karpv1.IsRestrictedLabel(key) != nil {
			delete(labels, key)
			s.lose(path+"["+key+"]", "Karpenter allows no NodePool to set it")
		}
	}
	return labels
}

// karpenterClass takes the reference to the NodeClass.
func (s *source) karpenterClass() map[string]any {
	const path = provisioner + "karpenterNodeClassRef"
	_, _ = take[any](s, path+".version") // references are by group
	ref, ok := take[map[string]any](s, path)
	if !ok {
		s.lose(path, "is not given, so that EC2NodeClass %s is referred to; create it, or name another", assumedClass)
		ref = map[string]any{"name": assumedClass}
	}
	s.drop(provisioner+"nodeClass", "a GPUNodeClass is no NodeClass of Karpenter; put what it says into the EC2NodeClass")
	out := map[string]any{"group": catalogprovider.Group, "kind": catalogprovider.NodeClassGVK.Kind}
	for _, key := range []string{"group", "kind", "name"} {
		put(out, key, ref[key], ref[key] != nil && ref[key] != "")
	}
	return out
}

// requirements takes the requirements. On AWS they get its names for families and sizes,
// and one that makes sure of NVIDIA GPUs.
func (s *source) requirements(onAWS bool) []any {
	const path = provisioner + "gpuRequirements"
	taken, _ := take[[]any](s, path)
	out := []any{}
	for i, item := range taken {
		at := fmt.Sprintf("%s[%d]", path, i)
		r, ok := item.(map[string]any)
		if !ok {
			s.lose(at, "is no requirement")
			continue
		}
		if r["operator"] == nil || r["operator"] == "" {
			r["operator"] = "In" // TensorFusion's default
		}
		if s.vendor(r, at, onAWS) || !s.rename(r, at, onAWS) {
			continue
		}
		out = append(out, r)
	}
	if onAWS {
		out = append(out, map[string]any{"key": manufacturerKey, "operator": "In", "values": []any{"nvidia"}})
	}
	return out
}

// vendor says whether a requirement is the one for a vendor, which goes. On AWS one for
// NVIDIA takes its place, which says the same as In [nvidia] alone.
func (s *source) vendor(r map[string]any, at string, onAWS bool) bool {
	if r["key"] != vendorKey {
		return false
	}
	asked := fmt.Sprint(r["operator"])
	if values, ok := r["values"].([]any); ok && len(values) > 0 {
		asked += " " + fmt.Sprint(values)
	}
	switch {
	case !strings.EqualFold(asked, "In [nvidia]"):
		s.lose(at, "only NVIDIA's GPUs are handled, and %s is asked for", asked)
	case !onAWS:
		s.lose(at, otherName, vendorKey)
	}
	return true
}

// otherName says of a requirement that this program knows no name for.
const otherName = "%s has another name at each provider; write that of yours"

// rename gives a requirement AWS's name; ok is false where there is none.
func (s *source) rename(r map[string]any, at string, onAWS bool) (ok bool) {
	key, _ := r["key"].(string)
	aws, known := renamed[key]
	switch {
	case !known:
		return true
	case !onAWS:
		s.lose(at, otherName, key)
		return false
	}
	r["key"] = aws
	return true
}
