package charts_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestBadValuesAreRefused: each message names the key.
func TestBadValuesAreRefused(t *testing.T) {
	helm := newRunner(t, "")
	for name, tc := range map[string]struct {
		chart   string
		args    []string
		message []string
	}{
		"an unknown key":                      {controller, []string{"--set=replica=3"}, []string{"'replica' not allowed"}},
		"an unknown setting":                  {controller, []string{"--set=settings.clusterNam=x"}, []string{"/settings", "'clusterNam' not allowed"}},
		"an unknown feature gate":             {controller, []string{"--set=settings.featureGates.NodeRepair=true"}, []string{"/settings/featureGates", "'NodeRepair' not allowed"}},
		"an unknown gate of AWS":              {controller, []string{"--set=settings.awsFeatureGates.dra=true"}, []string{"/settings/awsFeatureGates", "'dra' not allowed"}},
		"an unknown key of the image":         {controller, []string{"--set=controller.image.name=x"}, []string{"/controller/image", "'name' not allowed"}},
		"an unknown key of ours":              {controller, []string{"--set=gpu.predict=true"}, []string{"/gpu", "'predict' not allowed"}},
		"an unknown list of the catalogue":    {controller, []string{"--set=gpu.catalog.gpus[0].name=x"}, []string{"/gpu/catalog", "'gpus' not allowed"}},
		"a gate that is no boolean":           {controller, []string{"--set-string=settings.featureGates.nodeRepair=true"}, []string{"/settings/featureGates/nodeRepair", "want boolean"}},
		"replicas that are no number":         {controller, []string{"--set-string=replicas=two"}, []string{"/replicas", "want integer"}},
		"a port out of range":                 {controller, []string{"--set=controller.metrics.port=70000"}, []string{"/controller/metrics/port", "want 65,535"}},
		"an unknown policy":                   {controller, []string{"--set=settings.preferencePolicy=Maybe"}, []string{"/settings/preferencePolicy", "'Respect', 'Ignore'"}},
		"a duration without a unit":           {controller, []string{"--set-string=settings.batchIdleDuration=1"}, []string{"/settings/batchIdleDuration", "does not match"}},
		"a toleration without a unit":         {controller, []string{"--set-string=gpu.repairToleration=10"}, []string{"/gpu/repairToleration", "does not match"}},
		"a digest that is none":               {controller, []string{"--set=controller.image.digest=latest"}, []string{"/controller/image/digest", "does not match"}},
		"an unknown log level":                {controller, []string{"--set=logLevel=loud"}, []string{"/logLevel", "'debug'"}},
		"a label that is no text":             {controller, []string{"--set=podLabels.tier=1"}, []string{"/podLabels/tier", "want string"}},
		"tolerations that are no list":        {controller, []string{"--set=tolerations.key=x"}, []string{"/tolerations", "want array"}},
		"init containers by name":             {controller, []string{"--set=initContainers.wait=x"}, []string{"/initContainers"}},
		"an alert that is none":               {controller, []string{"--set=gpu.prometheusRule.enabled=true", "--set=gpu.prometheusRule.disabled={GPUOnFire}", monitoring}, []string{"gpu.prometheusRule.disabled names GPUOnFire, which is no alert", "GPUPoolNotReady"}},
		"an unknown key of the alerts":        {controller, []string{"--set=gpu.prometheusRule.labels.a=b"}, []string{"/gpu/prometheusRule", "'labels' not allowed"}},
		"a label of dashboards that is none":  {controller, []string{"--set=gpu.dashboards.labels.grafana_dashboard=1"}, []string{"/gpu/dashboards/labels/grafana_dashboard", "want string"}},
		"a namespace that is none":            {controller, []string{"--set=gpu.operator.namespace=GPU"}, []string{"/gpu/operator/namespace", "does not match"}},
		"no cluster":                          {controller, []string{"--set=settings.clusterName="}, []string{"settings.clusterName is empty, set it to the name of the EKS cluster"}},
		"all of DRA and a gate":               {controller, []string{"--set=settings.enableDRA=true", "--set=settings.awsFeatureGates.draEFA=true"}, []string{"settings.enableDRA excludes settings.awsFeatureGates.draEFA"}},
		"all of DRA and looking past it":      {controller, []string{"--set=settings.enableDRA=true", "--set=settings.ignoreDRARequests=false"}, []string{"settings.enableDRA excludes settings.ignoreDRARequests"}},
		"two ways to repair":                  {controller, []string{"--set=settings.legacyNodeRepair=true", "--set=settings.featureGates.terminateFirstRepair=true"}, []string{"settings.legacyNodeRepair excludes settings.featureGates.terminateFirstRepair"}},
		"the image of stock Karpenter":        {controller, []string{"--set=controller.image.repository=public.ecr.aws/karpenter/controller"}, []string{"controller.image.repository", "--reset-then-reuse-values"}},
		"values without ours":                 {controller, []string{"--set=gpu=null"}, []string{"gpu is missing", "--reset-then-reuse-values"}},
		"an unknown key of the definitions":   {definitions, []string{"--set=kept=true"}, []string{"'kept' not allowed"}},
		"an annotation that is no text":       {definitions, []string{"--set=additionalAnnotations.a=1"}, []string{"/additionalAnnotations/a", "want string"}},
		"a keep that is no boolean":           {definitions, []string{"--set-string=keep=no"}, []string{"/keep", "want boolean"}},
		"an unknown key of the agent":         {agentChart, []string{"--set=pool=x"}, []string{"'pool' not allowed"}},
		"an unknown way to the driver":        {agentChart, []string{"--set=driver.access=Magic"}, []string{"/driver/access", "'Runtime', 'RuntimeMounts', 'Host'"}},
		"the host without a library":          {agentChart, []string{"--set=driver.access=Host"}, []string{"driver.library is \"\"", "below /host"}},
		"an unknown check":                    {agentChart, []string{"--set=policy.checks.eec.disabled=true"}, []string{"/policy/checks", "'eec' not allowed"}},
		"an unknown severity":                 {agentChart, []string{"--set=policy.checks.ecc.severity=Loud"}, []string{"/policy/checks/ecc/severity", "'Fatal', 'Warning'"}},
		"a pool that is no name":              {agentChart, []string{"--set=pools[0]=A B"}, []string{"/pools/0", "does not match"}},
		"a pool twice":                        {agentChart, []string{"--set=pools={a,a}"}, []string{"/pools"}},
		"an interval without a unit":          {agentChart, []string{"--set-string=check.interval=30"}, []string{"/check/interval", "does not match"}},
		"a service account that is no name":   {agentChart, []string{"--set=serviceAccount.name=A"}, []string{"/serviceAccount/name", "does not match"}},
		"an unknown key of the agent's image": {agentChart, []string{"--set=image.version=1"}, []string{"/image", "'version' not allowed"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := tc.args
			if tc.chart == controller {
				args = append([]string{clusterName}, args...)
			}
			_, err := helm.run(t, template(tc.chart, args...)...)
			if err == nil {
				t.Fatal("it renders")
			}
			for _, part := range tc.message {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in the message:\n%v", part, err)
				}
			}
		})
	}
}

// TestChartsLint lints with the defaults and with every value changed; --strict makes
// warnings errors.
func TestChartsLint(t *testing.T) {
	helm := newRunner(t, "")
	for _, chart := range ourCharts {
		for name, args := range map[string][]string{"defaults": {clusterName}, "full": {"--values=" + fullValues(chart)}} {
			t.Run(filepath.Base(chart)+" "+name, func(t *testing.T) {
				if chart != controller && name == "defaults" {
					args = nil
				}
				if out, err := helm.run(t, append([]string{"lint", "--strict", chart}, args...)...); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}
