package converter

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/catalogprovider"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/catalog"
)

const (
	maxResources  = "capacityConfig.maxResources"
	warmResources = "capacityConfig.warmResources"
	budget        = provisioner + "budget"
	// maxPrice is the most that pricePerHour takes: nine digits before the point.
	maxPrice = 999999999
	// warmName is the name of the warm entry.
	warmName = "tensor-fusion"
)

// hours of a budget's periods: a month is a twelfth of a year, a quarter three of them.
var periods = []struct {
	field, fallback string
	hours           float64
}{{"budgetPerDay", "100", 24}, {"budgetPerMonth", "1000", 730}, {"budgetPerQuarter", "3000", 2190}}

// capacity converts amounts of GPU memory into GPUs, and budgets into a price.
func (c *conversion) capacity(ctx context.Context, s *source, nodePool, spec map[string]any) error {
	model, why, err := c.model(ctx, nodePool)
	if err != nil {
		return err
	}
	limits := map[string]any{}
	if gpus, ok := s.gpus(maxResources, model, why, math.Floor); ok {
		limits["gpus"] = gpus
	}
	if gpus, ok := s.gpus(warmResources, model, why, math.Ceil); ok && gpus > 0 {
		spec["warm"] = []any{map[string]any{"name": warmName, "gpus": gpus}}
	}
	if price, ok := s.price(); ok {
		limits["pricePerHour"] = price
	}
	put(spec, "limits", limits, len(limits) > 0)
	return nil
}

// gpus takes an amount of GPU memory as whole GPUs of a model.
func (s *source) gpus(path string, model catalog.Model, why string, round func(float64) float64) (int64, bool) {
	amount, ok := take[any](s, path)
	if !ok {
		return 0, false
	}
	fields, _ := amount.(map[string]any)
	for _, key := range []string{"tflops", "cpu", "memory"} {
		if fields[key] != nil {
			s.lose(path+"."+key, "pools count GPUs; vram decides about their number")
		}
	}
	s.others(path, fields, "tflops", "cpu", "memory", "vram")
	text, isText := fields["vram"].(string)
	if !isText {
		text = compact(fields["vram"])
	}
	vram, err := resource.ParseQuantity(text)
	switch {
	case fields["vram"] == nil:
		s.lose(path, "has no vram, from which the number of GPUs would follow")
		return 0, false
	case err != nil:
		s.lose(path+".vram", "%q is no quantity", text)
		return 0, false
	case model.IsZero():
		s.lose(path+".vram", "how many GPUs %s is cannot be told: %s", vram.String(), why)
		return 0, false
	}
	gpus := int64(round(float64(vram.Value()) / (float64(model.MemoryMiB) * (1 << 20))))
	s.lose(path+".vram", "carried over as %d GPUs (%s, %d MiB each), which are counted whole", gpus, model.Product, model.MemoryMiB)
	return gpus, true
}

// others reports the fields of an object that was taken but those that are known, sorted.
func (s *source) others(path string, fields map[string]any, known ...string) {
	for _, other := range leaves(lo.OmitByKeys(fields, known), path) {
		s.lose(other, "has no counterpart")
	}
}

// model is the one GPU model that the NodePool's requirements leave; why tells why there
// is none.
func (c *conversion) model(ctx context.Context, nodePool map[string]any) (model catalog.Model, why string, err error) {
	np := &karpv1.NodePool{}
	if err := manifest.Decode((&unstructured.Unstructured{Object: nodePool}).DeepCopy().Object, np); err != nil {
		return model, "", fmt.Errorf("NodePool %s: the result would be refused, %w", (&unstructured.Unstructured{Object: nodePool}).GetName(), err)
	}
	ref := np.Spec.Template.Spec.NodeClassRef
	if ref.Group != catalogprovider.Group {
		return model, "instance types of " + ref.Group + " are not known", nil
	}
	provider, err := catalogprovider.New(c.cloud, catalogprovider.DefaultNodeClass(ref.Name))
	if err != nil {
		return model, "", err
	}
	types, err := provider.GetInstanceTypes(ctx, np)
	if err != nil {
		return model, "", err
	}
	models := lo.Uniq(lo.FilterMap(types, func(it *corecloudprovider.InstanceType, _ int) (string, bool) {
		shape, ok := c.cloud.Catalog.Shape(it.Name)
		return shape.Model.Key, ok && shape.HasGPU() && fits(it, np)
	}))
	if len(models) != 1 {
		return model, fmt.Sprintf("its requirements leave %d GPU models; set it in GPUs yourself", len(models)), nil
	}
	model, _ = c.cloud.Catalog.Model(models[0])
	if model.MemoryMiB == 0 {
		return catalog.Model{}, "the memory of " + model.Product + " is not known", nil
	}
	return model, "", nil
}

// fits says whether a NodePool allows a type, wherever and however it is bought.
func fits(it *corecloudprovider.InstanceType, np *karpv1.NodePool) bool {
	elsewhere := []string{karpv1.CapacityTypeLabelKey, corev1.LabelTopologyZone, corev1.LabelTopologyRegion}
	reqs := scheduling.NewNodeSelectorRequirementsWithMinValues(np.Spec.Template.Spec.Requirements...)
	return it.Requirements.Intersects(scheduling.NewRequirements(lo.Filter(reqs.Values(), func(r *scheduling.Requirement, _ int) bool {
		return !slices.Contains(elsewhere, r.Key)
	})...)) == nil
}

// price takes the budget as the price per hour that spends no period's budget before the
// period ends.
func (s *source) price() (string, bool) {
	fields, ok := take[map[string]any](s, budget)
	if !ok {
		return "", false
	}
	s.others(budget, fields, "budgetPerDay", "budgetPerMonth", "budgetPerQuarter", "budgetExceedStrategy")
	least := s.leastHourly(fields)
	switch {
	case math.IsInf(least, 1): // each period has been told of
		return "", false
	case least > maxPrice:
		s.lose(budget, "is more than $%d an hour, the most that spec.limits.pricePerHour can say; no limit is set", maxPrice)
		return "", false
	}
	hourly := strconv.FormatFloat(math.Floor(least*100)/100, 'f', 2, 64)
	if fields["budgetExceedStrategy"] != "AlertAndTerminateVM" {
		s.lose(budget, "it only alerts; to hold launches to it, set spec.limits.pricePerHour: %q", hourly)
		return "", false
	}
	s.lose(budget, "carried over as spec.limits.pricePerHour: %q, which stops launches and ends no node", hourly)
	return hourly, true
}

// leastHourly is the least that a period's budget is an hour; infinite where none can be
// read.
func (s *source) leastHourly(fields map[string]any) float64 {
	least := math.Inf(1)
	for _, p := range periods {
		text, isText := fields[p.field].(string)
		if !isText && fields[p.field] != nil {
			text = compact(fields[p.field])
		}
		text = cmp.Or(text, p.fallback)
		amount, err := strconv.ParseFloat(text, 64)
		if err != nil || amount < 0 || math.IsNaN(amount) || math.IsInf(amount, 0) {
			s.lose(budget+"."+p.field, "%q is no amount of dollars", text)
			continue
		}
		least = min(least, amount/p.hours)
	}
	return least
}
