package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

const (
	// stockImage is the image of the AWS provider's own chart.
	stockImage = "public.ecr.aws/karpenter/controller"
	// gatesEnv and gatesFlag hold Karpenter's feature gates.
	gatesEnv, gatesFlag = "FEATURE_GATES", "feature-gates"
	// Helm's marks on what it installed.
	releaseName, releaseNamespace = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
	// defaultOperatorNamespace is the controller's default of --gpu-operator-namespace.
	defaultOperatorNamespace = "gpu-operator"
)

// controller is the Deployment that runs Karpenter. A nil one is none that is known: it
// has no gate on and the namespace of the guide.
type controller struct {
	*appsv1.Deployment
	container corev1.Container
	gates     options.FeatureGates
	gatesErr  error
}

// findController takes the first Deployment, by namespace and name, that is Karpenter's by
// the labels of its chart or by its environment.
func findController(deployments []*appsv1.Deployment) *controller {
	sorted := slices.SortedFunc(slices.Values(deployments), func(a, b *appsv1.Deployment) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	for _, d := range sorted {
		for _, c := range d.Spec.Template.Spec.Containers {
			_, isKarpenter := lo.Find(c.Env, func(v corev1.EnvVar) bool { return v.Name == "KARPENTER_SERVICE" })
			if isKarpenter || d.Labels["app.kubernetes.io/name"] == "karpenter" && c.Name == "controller" {
				out := &controller{Deployment: d, container: c}
				out.gates, out.gatesErr = options.ParseFeatureGates(out.setting(gatesEnv, gatesFlag))
				return out
			}
		}
	}
	return nil
}

// setting is the value of a flag, or else of an environment variable. Of what stands
// there twice the last counts, as it does for a process.
func (c *controller) setting(env, flag string) string {
	if c == nil {
		return ""
	}
	args := append(slices.Clone(c.container.Command), c.container.Args...)
	for i, arg := range slices.Backward(args) {
		name := strings.TrimLeft(arg, "-")
		if value, ok := strings.CutPrefix(name, flag+"="); ok {
			return value
		}
		if name == flag && i+1 < len(args) {
			return args[i+1]
		}
	}
	v, _, _ := lo.FindLastIndexOf(c.container.Env, func(v corev1.EnvVar) bool { return v.Name == env })
	return v.Value
}

func (c *controller) namespace() string {
	if c == nil {
		return defaultNamespace
	}
	return c.Namespace
}

// operatorNamespace is where the controller writes ConfigMaps for NVIDIA's software.
func (c *controller) operatorNamespace() string {
	return cmp.Or(c.setting("GPU_OPERATOR_NAMESPACE", "gpu-operator-namespace"), defaultOperatorNamespace)
}

// gate says whether a feature gate of Karpenter is on. Without a controller its default
// counts.
func (c *controller) gate(name string) bool {
	gates := options.DefaultFeatureGates()
	if c != nil {
		gates = c.gates
	}
	switch name {
	case "CapacityBuffer":
		return gates.CapacityBuffer
	case "NodeRepair":
		return gates.NodeRepair
	case "NodeOverlay":
		return gates.NodeOverlay
	case "ReservedCapacity":
		return gates.ReservedCapacity
	case "StaticCapacity":
		return gates.StaticCapacity
	}
	return false
}

// upgrade is the command that sets a value of our chart.
func (c *controller) upgrade(setting string) string {
	release, namespace := cmp.Or(c.Annotations[releaseName], "karpenter"), cmp.Or(c.Annotations[releaseNamespace], c.Namespace)
	return fmt.Sprintf("helm upgrade %s %s --namespace %s --reset-then-reuse-values --set %s", release, controllerChart, namespace, setting)
}

// turnOn is the command that turns a feature gate on: through Helm where Helm installed
// the Deployment, because it would undo any other change.
func (c *controller) turnOn(gate string) string {
	if c.Annotations[releaseName] != "" {
		return c.upgrade("settings.featureGates." + strings.ToLower(gate[:1]) + gate[1:] + "=true")
	}
	pairs := lo.Filter(strings.Split(c.setting(gatesEnv, gatesFlag), ","), func(p string, _ int) bool {
		return p != "" && !strings.HasPrefix(strings.TrimSpace(p), gate+"=")
	})
	return fmt.Sprintf("kubectl set env deployment/%s --namespace %s --containers %s %s=%s", c.Name, c.Namespace, c.container.Name, gatesEnv, strings.Join(append(pairs, gate+"=true"), ","))
}

// deployment looks whether our controller runs.
func (e *examination) deployment() {
	c := e.controller
	if c == nil {
		if e.complete("Deployment") {
			e.add(Finding{Severity: Error, Reason: ReasonControllerMissing, Object: "Deployment " + defaultNamespace + "/karpenter",
				Message: "no Deployment of the cluster runs Karpenter: nothing launches nodes",
				Fix:     "install it, with the name of the EKS cluster in place of CLUSTER", Command: fmt.Sprintf(
					"helm install karpenter %s --namespace %s --set settings.clusterName=CLUSTER", controllerChart, defaultNamespace)})
		}
		return
	}
	name := title("Deployment", c.Deployment)
	if repository, _, _ := strings.Cut(strings.Split(c.container.Image, "@")[0], ":"); repository == stockImage && len(e.gpuPools) > 0 {
		e.add(Finding{Severity: Error, Reason: ReasonControllerStock, Object: name, Message: fmt.Sprintf("it runs stock Karpenter (%s), which knows no GPUPool", c.container.Image),
			Command: strings.TrimSuffix(c.upgrade(""), " --set ")})
	}
	if e.Cluster && c.Status.AvailableReplicas == 0 {
		e.add(Finding{Severity: Error, Reason: ReasonControllerNotAvailable, Object: name, Message: fmt.Sprintf("none of its %d replicas is available: nothing launches or verifies nodes", lo.FromPtrOr(c.Spec.Replicas, 1)),
			Fix: "look at why its pods do not run", Command: fmt.Sprintf("kubectl describe pods --namespace %s --selector %s", c.Namespace, pairs(c.Spec.Selector.MatchLabels))})
	}
}

// pairs writes labels as a selector.
func pairs(labels map[string]string) string {
	all := lo.MapToSlice(labels, func(k, v string) string { return k + "=" + v })
	slices.Sort(all)
	return strings.Join(all, ",")
}

// need is a feature gate that some object asks for.
type need struct {
	gate     string
	severity Severity
	objects  []string
	message  string
}

// gates looks for feature gates that pools or NodePools need. Without a controller
// there is nothing to say: its settings may be elsewhere.
func (e *examination) gates() {
	c := e.controller
	if c == nil {
		return
	}
	if c.gatesErr != nil {
		e.add(Finding{Severity: Error, Reason: ReasonFeatureGatesInvalid, Object: title("Deployment", c.Deployment),
			Message: fmt.Sprintf("%s cannot be read, so that the controller does not start: %s", gatesEnv, c.gatesErr), Fix: "write Name=true or Name=false, with commas between them"})
		return
	}
	for _, n := range e.needs() {
		if len(n.objects) == 0 || c.gate(n.gate) {
			continue
		}
		e.add(Finding{Severity: n.severity, Reason: ReasonFeatureGateOff, Object: title("Deployment", c.Deployment),
			Message: fmt.Sprintf("the feature gate %s is off: %s (%s)", n.gate, n.message, listed(n.objects)), Command: c.turnOn(n.gate)})
	}
}

func (e *examination) needs() []need {
	all := []need{
		{gate: "CapacityBuffer", severity: Error, message: "the entries of spec.warm hold nothing ready"},
		{gate: "ReservedCapacity", severity: Error, message: "reserved in capacityTypes is never launched"},
		{gate: "StaticCapacity", severity: Error, message: "spec.replicas of NodePools is ignored"},
		{gate: "NodeRepair", severity: Warning, message: "nodes whose GPUs break are fenced and then stay, paid for and without work"},
	}
	for _, p := range e.gpuPools {
		name := title("GPUPool", p)
		if len(p.Spec.Warm) > 0 {
			all[0].objects = append(all[0].objects, name)
		}
		if reserved(p) {
			all[1].objects = append(all[1].objects, name)
		}
		all[3].objects = append(all[3].objects, name)
	}
	for _, np := range e.nodePools {
		if np.Spec.Replicas != nil {
			all[2].objects = append(all[2].objects, title("NodePool", np))
		}
	}
	return all
}

func reserved(p *v1alpha1.GPUPool) bool {
	return slices.Contains(p.Spec.Selection.CapacityTypes, v1alpha1.CapacityTypeReserved) ||
		lo.SomeBy(p.Spec.Warm, func(w v1alpha1.WarmCapacity) bool {
			return slices.Contains(w.CapacityTypes, v1alpha1.CapacityTypeReserved)
		})
}
