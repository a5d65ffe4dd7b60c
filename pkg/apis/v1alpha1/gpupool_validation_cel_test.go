package v1alpha1_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// at is a path into the full pool.
func at(path ...any) []any { return path }

func list(length int, item string) string {
	items := make([]string, length)
	for i := range items {
		items[i] = fmt.Sprintf(item, i+1)
	}
	return "[" + strings.Join(items, ", ") + "]"
}

var _ = Describe("Rules of the CRD", func() {
	It("should accept a pool that sets most fields", func() {
		Expect(kube.Create(ctx, fromYAML(full))).To(Succeed())
	})

	DescribeTable("should refuse",
		func(path []any, value, message string) {
			pool := fromYAML(full)
			set(pool, value, path...)
			err := kube.Create(ctx, pool)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "got %v", err)
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("a name that is no label value", at("metadata", "name"), strings.Repeat("a", 64), "metadata.name must have at most 63 characters"),

		Entry("two ways to divide GPUs", at("spec", "partitioning", "mps"), "{replicas: 4}", "partitioning takes one of mig, timeSlicing and mps; keep one of them, or remove partitioning"),
		Entry("three ways to divide GPUs", at("spec", "partitioning"), "{mig: {profiles: [1g.10gb]}, mps: {replicas: 4}, timeSlicing: {replicas: 4}}", "partitioning takes one of mig, timeSlicing and mps"),
		Entry("MIG with layouts and profiles", at("spec", "partitioning", "mig", "profiles"), "[1g.10gb]", "mig takes exactly one of layouts and profiles"),
		Entry("MIG with neither layouts nor profiles", at("spec", "partitioning", "mig", "layouts"), "null", "mig takes exactly one of layouts and profiles"),
		Entry("an empty list of layouts", at("spec", "partitioning", "mig", "layouts"), "[]", "should have at least 1 items"),
		Entry("too many layouts", at("spec", "partitioning", "mig", "layouts"), list(33, "all-%d"), "must have at most 32 items"),
		Entry("a layout twice", at("spec", "partitioning", "mig", "layouts"), "[all-balanced, all-balanced]", "Duplicate value"),
		Entry("a layout that is no label value", at("spec", "partitioning", "mig", "layouts"), `["all 1g"]`, "a layout name becomes the value of the label nvidia.com/mig.config"),
		Entry("a layout that is too long", at("spec", "partitioning", "mig", "layouts"), "["+strings.Repeat("a", 64)+"]", "may not be more than 63"),
		Entry("the layout that creates nothing", at("spec", "partitioning", "mig", "layouts"), "[all-enabled]", "layout all-enabled turns MIG on and creates no partition"),
		Entry("strategy Single with unlike partitions", at("spec", "partitioning", "mig", "strategy"), "Single", "strategy Single gives every partition the one name nvidia.com/gpu, so all partitions of a node must be alike"),
		Entry("strategy Single with whole GPUs", at("spec", "partitioning", "mig"), "{strategy: Single, layouts: [all-disabled]}", "remove all-balanced and all-disabled from layouts"),
		Entry("strategy Single with two profiles", at("spec", "partitioning", "mig"), "{strategy: Single, profiles: [1g.10gb, 2g.20gb]}", "keep one profile, or use strategy Mixed"),
		Entry("an unknown strategy", at("spec", "partitioning", "mig", "strategy"), "mixed", `supported values: "Mixed", "Single"`),
		Entry("a profile that is not NVIDIA's way to write it", at("spec", "partitioning", "mig"), "{profiles: [1g10gb]}", "a profile is written as NVIDIA prints it"),
		Entry("a resource name in place of a profile", at("spec", "partitioning", "mig"), "{profiles: [nvidia.com/mig-1g.10gb]}", "a profile is written as NVIDIA prints it"),
		Entry("a profile twice", at("spec", "partitioning", "mig"), "{profiles: [1g.10gb, 1g.10gb]}", "Duplicate value"),
		Entry("an unknown neighbor", at("spec", "partitioning", "mig", "announceTo"), "[Other]", `supported values: "TensorFusion"`),
		Entry("time slicing without replicas", at("spec", "partitioning"), "{timeSlicing: {}}", "spec.partitioning.timeSlicing.replicas: Required value"),
		Entry("time slicing with one replica", at("spec", "partitioning"), "{timeSlicing: {replicas: 1}}", "timeSlicing.replicas must be at least 2, so that a GPU is shared; remove timeSlicing"),
		Entry("time slicing with too many replicas", at("spec", "partitioning"), "{timeSlicing: {replicas: 257}}", "should be less than or equal to 256"),
		Entry("MPS with one replica", at("spec", "partitioning"), "{mps: {replicas: 1}}", "mps.replicas must be from 2 to 48"),
		Entry("MPS with more clients than it serves", at("spec", "partitioning"), "{mps: {replicas: 49}}", "use timeSlicing for more"),

		Entry("an unknown objective", at("spec", "selection", "objective"), "Cheap", `supported values: "Cost", "Stock"`),
		Entry("a negative cap", at("spec", "selection", "maxUnusedGPUs"), "-1", "should be greater than or equal to 0"),
		Entry("a cap beyond any machine", at("spec", "selection", "maxUnusedGPUs"), "1001", "should be less than or equal to 1000"),
		Entry("no capacity type", at("spec", "selection", "capacityTypes"), "[]", "should have at least 1 items"),
		Entry("an unknown capacity type", at("spec", "selection", "capacityTypes"), "[ondemand]", `supported values: "reserved", "spot", "on-demand"`),
		Entry("a capacity type twice", at("spec", "selection", "capacityTypes"), "[spot, on-demand, spot]", "each of reserved, spot and on-demand stands in it once"),
		Entry("a tolerance below zero", at("spec", "selection", "priceTolerancePercent"), "-1", "should be greater than or equal to 0"),
		Entry("a tolerance above the double price", at("spec", "selection", "priceTolerancePercent"), "101", "should be less than or equal to 100"),

		Entry("an unknown gate", at("spec", "readiness", "gate"), "Taint", `supported values: "StartupTaint", "Registration", "None"`),
		Entry("an unknown enforcement", at("spec", "readiness", "enforce"), "Never", `supported values: "WhenSafe", "Always"`),
		Entry("enforcement of no gate", at("spec", "readiness"), "{gate: None, enforce: Always}", "enforce: Always has nothing to enforce with gate None"),
		Entry("a deadline that is no duration", at("spec", "readiness", "deadline"), "soon", "deadline must be a duration from 1m to 24h written with h, m and s, such as 10m"),
		Entry("a deadline in days", at("spec", "readiness", "deadline"), "1d", "deadline must be a duration from 1m to 24h"),
		Entry("a deadline that is too short", at("spec", "readiness", "deadline"), "59s", "deadline must be a duration from 1m to 24h"),
		Entry("a deadline that is too long", at("spec", "readiness", "deadline"), "24h1s", "deadline must be a duration from 1m to 24h"),
		Entry("a deadline that overflows", at("spec", "readiness", "deadline"), "99999h99999h", "deadline must be a duration from 1m to 24h"),
		Entry("a Registration deadline at Karpenter's own", at("spec", "readiness"), "{gate: Registration, deadline: 15m}", "with gate Registration the deadline must be less than 15m, because Karpenter itself deletes a node"),
		Entry("a Registration deadline that is no duration", at("spec", "readiness"), "{gate: Registration, deadline: soon}", "deadline must be a duration from 1m to 24h"),
		Entry("a driver version in words", at("spec", "readiness", "minDriverVersion"), "R550", "minDriverVersion must be one to three numbers"),
		Entry("an empty driver version", at("spec", "readiness", "minDriverVersion"), `""`, "minDriverVersion must be one to three numbers"),
		Entry("a CUDA version of three parts", at("spec", "readiness", "minCUDAVersion"), `"12.4.1"`, "minCUDAVersion must be one or two numbers"),
		Entry("an unknown check", at("spec", "readiness", "checks"), "[{name: color, enabled: false}]", `Unsupported value: "color"`),
		Entry("the check that cannot be changed", at("spec", "readiness", "checks"), "[{name: boot-id, enabled: false}]", `Unsupported value: "boot-id"`),
		Entry("a check twice", at("spec", "readiness", "checks"), "[{name: ecc, enabled: false}, {name: ecc, severity: Fatal}]", "Duplicate value"),
		Entry("a check that changes nothing", at("spec", "readiness", "checks"), "[{name: ecc}]", "a check must change something; set enabled, severity or timeout"),
		Entry("an unknown severity", at("spec", "readiness", "checks"), "[{name: ecc, severity: Info}]", `supported values: "Fatal", "Warning"`),
		Entry("a check with no time", at("spec", "readiness", "checks"), "[{name: ecc, timeout: 0s}]", "timeout must be a duration from 1s to 5m"),
		Entry("a check with too much time", at("spec", "readiness", "checks"), "[{name: ecc, timeout: 6m}]", "timeout must be a duration from 1s to 5m"),
		Entry("time for a check that calls nothing", at("spec", "readiness", "checks"), "[{name: cuda-version, timeout: 5s}]", "timeout has nothing to bound for driver-version, cuda-version and xid"),
		Entry("no trial", at("spec", "readiness", "maxConcurrentTrials"), "0", "should be greater than or equal to 1"),
		Entry("too many trials", at("spec", "readiness", "maxConcurrentTrials"), "101", "should be less than or equal to 100"),

		Entry("an XID policy without codes", at("spec", "health", "xidPolicies"), "[{action: Fence}]", "codes: Required value"),
		Entry("an XID policy without action", at("spec", "health", "xidPolicies"), "[{codes: [1]}]", "action: Required value"),
		Entry("an unknown XID action", at("spec", "health", "xidPolicies"), "[{codes: [1], action: Delete}]", `supported values: "Ignore", "Warn", "Fence", "Reboot", "Replace"`),
		Entry("an XID code of zero", at("spec", "health", "xidPolicies"), "[{codes: [0], action: Fence}]", "should be greater than or equal to 1"),
		Entry("an XID code that NVIDIA cannot mean", at("spec", "health", "xidPolicies"), "[{codes: [10000], action: Fence}]", "should be less than or equal to 9999"),
		Entry("an XID code in two policies", at("spec", "health", "xidPolicies"), "[{codes: [1, 79], action: Fence}, {codes: [79], action: Ignore}]", "an XID code stands in two xidPolicies"),
		Entry("an XID code twice in one policy", at("spec", "health", "xidPolicies"), "[{codes: [79, 79], action: Fence}]", "Duplicate value"),
		Entry("too many XID policies", at("spec", "health", "xidPolicies"), list(17, "{codes: [%d], action: Fence}"), "must have at most 16 items"),
		Entry("fewer fenced partitions than none", at("spec", "health", "maxFencedPartitions"), "-1", "should be greater than or equal to 0"),
		Entry("more fenced partitions than a node can have", at("spec", "health", "maxFencedPartitions"), "113", "should be less than or equal to 112"),

		Entry("empty nodes that stay too long", at("spec", "reclaim", "emptyAfter"), "25h", "emptyAfter must be a duration from 0s to 24h"),
		Entry("a negative time for empty nodes", at("spec", "reclaim", "emptyAfter"), `"-1s"`, "remove it to leave empty nodes to Karpenter's consolidation"),
		Entry("a negative limit of GPUs", at("spec", "limits", "gpus"), "-1", "should be greater than or equal to 0"),
		Entry("a limit of GPUs beyond counting", at("spec", "limits", "gpus"), "1000001", "should be less than or equal to 1000000"),
		Entry("a limit in another currency", at("spec", "limits", "pricePerHour"), `"400 EUR"`, "pricePerHour must be a decimal number of US dollars per hour"),
		Entry("a negative limit of money", at("spec", "limits", "pricePerHour"), `"-1"`, "pricePerHour must be a decimal number of US dollars per hour"),
		Entry("a limit of money in powers", at("spec", "limits", "pricePerHour"), `"4e2"`, `such as "400" or "12.50"`),
		Entry("a limit of money without quotes", at("spec", "limits", "pricePerHour"), "400", `spec.limits.pricePerHour in body must be of type string: "integer"`),
	)
})

var _ = Describe("Rules of warm entries", func() {
	DescribeTable("should refuse",
		func(entry, message string) {
			pool := fromYAML(full)
			set(pool, "["+entry+"]", "spec", "warm")
			err := kube.Create(ctx, pool)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "got %v", err)
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("an entry without a name", "{gpus: 1}", "spec.warm[0].name: Required value"),
		Entry("a name in upper case", "{name: Day, gpus: 1}", "the name of a warm entry has 1 to 32 lower-case letters"),
		Entry("an empty name", `{name: "", gpus: 1}`, "the name of a warm entry has 1 to 32 lower-case letters"),
		Entry("a name that is too long", "{name: "+strings.Repeat("a", 33)+", gpus: 1}", "may not be more than 32"),
		Entry("a name twice", "{name: day, gpus: 1}, {name: day, gpus: 2}", "Duplicate value"),
		Entry("no amount", "{name: day}", "a warm entry takes exactly one of gpus, partitions, podTemplateRef and scalableRef"),
		Entry("two amounts", "{name: day, gpus: 1, partitions: [{profile: 1g.10gb, count: 1}]}", "a warm entry takes exactly one of gpus, partitions, podTemplateRef and scalableRef"),
		Entry("zero GPUs", "{name: day, gpus: 0}", "gpus of a warm entry must be at least 1; remove the entry"),
		Entry("too many GPUs", "{name: day, gpus: 10001}", "should be less than or equal to 10000"),
		Entry("more GPUs than the limit", "{name: day, gpus: 201}", "more GPUs than spec.limits.gpus allows; lower the entry or raise the limit"),
		Entry("GPUs and replicas", "{name: day, gpus: 1, replicas: 1}", "replicas and percentage count pods"),
		Entry("GPUs and percentage", "{name: day, gpus: 1, percentage: 1}", "put the amount into gpus or partitions"),
		Entry("a pod template without replicas", "{name: day, podTemplateRef: {namespace: a, name: b}}", "a warm entry with podTemplateRef needs replicas and no percentage"),
		Entry("a pod template with a percentage", "{name: day, podTemplateRef: {namespace: a, name: b}, replicas: 1, percentage: 1}", "a pod template has no size to take a percentage of"),
		Entry("a pod template without namespace", "{name: day, podTemplateRef: {name: b}, replicas: 1}", "podTemplateRef.namespace: Required value"),
		Entry("a workload without amount", "{name: day, scalableRef: {kind: Deployment, namespace: a, name: b}}", "a warm entry with scalableRef needs exactly one of replicas and percentage"),
		Entry("a workload with two amounts", "{name: day, scalableRef: {kind: Deployment, namespace: a, name: b}, replicas: 1, percentage: 1}", "a warm entry with scalableRef needs exactly one of replicas and percentage"),
		Entry("a workload without kind", "{name: day, scalableRef: {namespace: a, name: b}, replicas: 1}", "scalableRef.kind: Required value"),
		Entry("zero replicas", "{name: day, podTemplateRef: {namespace: a, name: b}, replicas: 0}", "replicas of a warm entry must be at least 1"),
		Entry("zero percent", "{name: day, scalableRef: {kind: Deployment, namespace: a, name: b}, percentage: 0}", "percentage of a warm entry must be at least 1"),
		Entry("too many percent", "{name: day, scalableRef: {kind: Deployment, namespace: a, name: b}, percentage: 1001}", "should be less than or equal to 1000"),
		Entry("no partition", "{name: day, partitions: []}", "should have at least 1 items"),
		Entry("a partition that is not NVIDIA's way to write it", "{name: day, partitions: [{profile: 1g-10gb, count: 1}]}", "a profile is written as NVIDIA prints it"),
		Entry("zero partitions", "{name: day, partitions: [{profile: 1g.10gb, count: 0}]}", "count of a partition must be at least 1"),
		Entry("a profile twice", "{name: day, partitions: [{profile: 1g.10gb, count: 1}, {profile: 1g.10gb, count: 2}]}", "Duplicate value"),
		Entry("a price in words", "{name: day, gpus: 1, maxPricePerHour: cheap}", "maxPricePerHour must be a decimal number of US dollars per hour"),
		Entry("a capacity type twice", "{name: day, gpus: 1, capacityTypes: [spot, spot]}", "each of reserved, spot and on-demand stands in it once"),
		Entry("an image with a scheme and spaces", `{name: day, gpus: 1, images: ["docker://a b"]}`, "an image is written as in a pod"),
		Entry("an image twice", "{name: day, gpus: 1, images: [a, a]}", "Duplicate value"),
		Entry("an empty pull secret", `{name: day, gpus: 1, imagePullSecrets: [""]}`, "should be at least 1 chars long"),
		Entry("a schedule without windows", "{name: day, gpus: 1, schedule: {windows: []}}", "should have at least 1 items"),
		Entry("a window without duration", `{name: day, gpus: 1, schedule: {windows: [{start: "0 7 * * *"}]}}`, "duration: Required value"),
		Entry("a cron line of four fields", `{name: day, gpus: 1, schedule: {windows: [{start: "0 7 * *", duration: 1h}]}}`, "start must be a cron line of five fields"),
		Entry("a cron line that counts from the process", `{name: day, gpus: 1, schedule: {windows: [{start: "@every 5m", duration: 1h}]}}`, "start must be a cron line of five fields"),
		Entry("a cron line with a zone", `{name: day, gpus: 1, schedule: {windows: [{start: "TZ=UTC 7 * * *", duration: 1h}]}}`, "the time zone goes into timeZone"),
		Entry("a window that is too short", `{name: day, gpus: 1, schedule: {windows: [{start: "@daily", duration: 59s}]}}`, "duration of a window must be from 1m to 168h"),
		Entry("a window that is longer than a week", `{name: day, gpus: 1, schedule: {windows: [{start: "@daily", duration: 169h}]}}`, "remove schedule to hold the entry always"),
		Entry("the machine's own zone", `{name: day, gpus: 1, schedule: {windows: [{start: "@daily", duration: 1h, timeZone: Local}]}}`, "timeZone must be the IANA name of a time zone"),
		Entry("a path for a zone", `{name: day, gpus: 1, schedule: {windows: [{start: "@daily", duration: 1h, timeZone: ../etc/passwd}]}}`, "timeZone must be the IANA name of a time zone"),
		Entry("a share of nothing", `{name: day, gpus: 1, schedule: {windows: [{start: "@daily", duration: 1h, sharePercent: 0}]}}`, "should be greater than or equal to 1"),
		Entry("a share of more than all", `{name: day, gpus: 1, schedule: {windows: [{start: "@daily", duration: 1h, sharePercent: 101}]}}`, "should be less than or equal to 100"),
		Entry("too many entries", strings.Trim(list(17, "{name: e%d, gpus: 1}"), "[]"), "must have at most 16 items"),
	)

	It("should refuse partitions where GPUs are not divided by MIG", func() {
		pool := fromYAML(full)
		set(pool, "{timeSlicing: {replicas: 2}}", "spec", "partitioning")
		Expect(kube.Create(ctx, pool)).To(MatchError(ContainSubstring("a warm entry with partitions needs spec.partitioning.mig; add it, or ask for gpus instead")))
		set(pool, "null", "spec", "partitioning")
		Expect(kube.Create(ctx, pool)).To(MatchError(ContainSubstring("a warm entry with partitions needs spec.partitioning.mig")))
	})
	It("should refuse partitions of a profile that the pool does not plan", func() {
		pool := fromYAML(full)
		set(pool, "{profiles: [3g.40gb]}", "spec", "partitioning", "mig")
		Expect(kube.Create(ctx, pool)).To(MatchError(ContainSubstring("a profile that spec.partitioning.mig.profiles does not list")))
		set(pool, "{profiles: [3g.40gb, 1g.10gb]}", "spec", "partitioning", "mig")
		Expect(kube.Create(ctx, pool)).To(Succeed())
	})
})

var _ = Describe("Values at the bounds", func() {
	DescribeTable("should be accepted",
		func(path []any, value string) {
			pool := fromYAML(full)
			set(pool, value, path...)
			Expect(kube.Create(ctx, pool)).To(Succeed())
		},
		Entry("an empty spec", at("spec"), "{}"),
		Entry("a name of 63 characters", at("metadata", "name"), strings.Repeat("a", 63)),
		Entry("strategy Single with layouts that are alike", at("spec", "partitioning", "mig"), "{strategy: Single, layouts: [all-1g.10gb, all-3g.40gb]}"),
		Entry("whole GPUs beside partitions", at("spec", "partitioning", "mig", "layouts"), "[all-1g.10gb, all-disabled]"),
		Entry("profiles with attributes", at("spec"), "{partitioning: {mig: {profiles: [1g.10gb+me, 1g.24gb+me.all, 1g.24gb-me, 2g.48gb+gfx]}}}"),
		Entry("as many layouts as can be", at("spec", "partitioning", "mig", "layouts"), list(32, "all-%d")),
		Entry("a cap of zero", at("spec", "selection", "maxUnusedGPUs"), "0"),
		Entry("a Registration deadline below Karpenter's own", at("spec", "readiness"), "{gate: Registration, deadline: 14m59s}"),
		Entry("the default deadline with gate Registration", at("spec", "readiness"), "{gate: Registration}"),
		Entry("a deadline of a day", at("spec", "readiness", "deadline"), "24h"),
		Entry("empty nodes that go at once", at("spec", "reclaim", "emptyAfter"), "0s"),
		Entry("limits of nothing", at("spec"), `{limits: {gpus: 0, pricePerHour: "0"}}`),
		Entry("a limit of money to the millionth", at("spec", "limits", "pricePerHour"), `"999999999.999999"`),
		Entry("a zone of three parts", at("spec", "warm"), `[{name: a, gpus: 1, schedule: {windows: [{start: "*/5 0-6,22 1 JAN ?", duration: 168h, timeZone: America/Argentina/Buenos_Aires}]}}]`),
		Entry("a digest as image", at("spec", "warm"), "[{name: a, gpus: 1, images: ['localhost:5000/a/b@sha256:"+strings.Repeat("0", 64)+"']}]"),
		Entry("as many XID policies as can be", at("spec", "health", "xidPolicies"), list(16, "{codes: [%d], action: Warn}")),
	)
})
