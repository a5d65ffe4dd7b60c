package readiness_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

func TestVerify(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*readiness.Subject)
		want   readiness.Verdict
	}{
		"a node that is what was bought is verified": {
			want: readiness.Verdict{State: readiness.StateVerified, Reason: "Verified", Message: "the GPUs are what was bought"},
		},
		"a node on which no agent runs waits": {
			change: func(s *readiness.Subject) { s.Node.Status.Conditions = nil },
			want:   readiness.Verdict{State: readiness.StatePending, Reason: "NoReport", Message: "the GPU agent has not reported from this node; check that its pod runs there"},
		},
		"a condition without a report is none": {
			change: func(s *readiness.Subject) { delete(s.Node.Annotations, v1alpha1.ReportAnnotationKey) },
			want:   readiness.Verdict{State: readiness.StatePending, Reason: "NoReport", Message: "the GPU agent has set its condition and no report"},
		},
		"a late driver is waited for, with the agent's words": {
			change: func(s *readiness.Subject) {
				report(s.Node, broken(health.Report{Version: 1, BootID: boot}, health.Starting, health.ReportFinding{
					Check: health.CheckDriver, Reason: health.DriverNotLoaded, Message: "the NVIDIA kernel module is not loaded"}))
			},
			want: readiness.Verdict{State: readiness.StatePending, Reason: "DriverNotLoaded", Message: "the NVIDIA kernel module is not loaded"},
		},
		"a driver that differs from its library is a fault before any verification": {
			change: func(s *readiness.Subject) {
				report(s.Node, broken(health.Report{Version: 1, BootID: boot}, health.Unhealthy, health.ReportFinding{
					Check: health.CheckDriver, Reason: health.DriverLibraryMismatch, Message: "550 and 535"}))
			},
			want: readiness.Verdict{State: readiness.StateFaulty, Reason: "DriverLibraryMismatch", Message: "550 and 535"},
		},
		"the report of an earlier boot does not open the gate of this one": {
			change: func(s *readiness.Subject) { s.Node.Status.NodeInfo.BootID = reboot },
			want:   readiness.Verdict{State: readiness.StatePending, Reason: "BootDiffers", Message: "the report is of an earlier boot of the node"},
		},
		"a node whose boot is not known waits": {
			change: func(s *readiness.Subject) {
				r := h100s("")
				report(s.Node, r)
				s.Node.Status.NodeInfo.BootID = ""
			},
			want: readiness.Verdict{State: readiness.StatePending, Reason: "NoBootID", Message: "the kubelet has not told the boot ID of the node"},
		},
		"fewer GPUs than bought keep the gate shut although all of them work": {
			change: func(s *readiness.Subject) {
				r := h100s(boot)
				r.GPUs, r.Known = r.GPUs[:7], 7
				report(s.Node, r)
			},
			want: readiness.Verdict{State: readiness.StatePending, Reason: "GPUCountDiffers", Message: "GPUCountDiffers, want 8 GPUs, got 7 GPUs"},
		},
		"more GPUs than the type has are not believed": {
			change: func(s *readiness.Subject) {
				r := h100s(boot)
				r.GPUs = append(r.GPUs, health.ReportGPU{Index: 8, UUID: "GPU-8", Product: "NVIDIA H100 80GB HBM3", MemoryMiB: 81559})
				report(s.Node, r)
			},
			want: readiness.Verdict{State: readiness.StatePending, Reason: "ReportImplausible", Message: "GPUCountDiffers, want 8 GPUs, got 9 GPUs; GPU 8: PartitionsDiffer, want no such GPU, got MIG off"},
		},
		"another model than bought keeps the gate shut": {
			change: func(s *readiness.Subject) {
				r := h100s(boot)
				r.GPUs[3].Product, r.GPUs[3].MemoryMiB = "NVIDIA A100-SXM4-80GB", 81920
				report(s.Node, r)
			},
			want: readiness.Verdict{State: readiness.StatePending, Reason: "ProductDiffers", Message: "GPU 3: ProductDiffers, want NVIDIA H100 80GB HBM3, got NVIDIA A100-SXM4-80GB"},
		},
		"a partial registration of the device plugin keeps the gate shut": {
			change: func(s *readiness.Subject) { s.Node.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("4") },
			want: readiness.Verdict{State: readiness.StatePending, Reason: "ResourcesMissing",
				Message: "the device plugin has not registered all devices, nvidia.com/gpu: 4 of 8"},
		},
		"EFA that pods asked for is waited for": {
			change: func(s *readiness.Subject) {
				s.Claim.Spec.Resources.Requests = corev1.ResourceList{"vpc.amazonaws.com/efa": resource.MustParse("1")}
				delete(s.Node.Status.Allocatable, "vpc.amazonaws.com/efa")
			},
			want: readiness.Verdict{State: readiness.StatePending, Reason: "ResourcesMissing",
				Message: "the device plugin has not registered all devices, vpc.amazonaws.com/efa: 0 of 32"},
		},
		"EFA that nobody asked for is not": {
			change: func(s *readiness.Subject) { delete(s.Node.Status.Allocatable, "vpc.amazonaws.com/efa") },
			want:   readiness.Verdict{State: readiness.StateVerified, Reason: "Verified", Message: "the GPUs are what was bought"},
		},
		"a node for device claims alone needs no device plugin": {
			change: func(s *readiness.Subject) {
				s.Claim.Annotations = map[string]string{karpv1.DRADriversAnnotationKey: "gpu.nvidia.com"}
				s.Node.Status.Allocatable = nil
			},
			want: readiness.Verdict{State: readiness.StateVerified, Reason: "Verified", Message: "the GPUs are what was bought"},
		},
		"a type for which the provider reports no GPU is held against the catalogue": {
			change: func(s *readiness.Subject) {
				delete(s.Claim.Status.Capacity, "nvidia.com/gpu")
				s.Node.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("2")
			},
			want: readiness.Verdict{State: readiness.StatePending, Reason: "ResourcesMissing",
				Message: "the device plugin has not registered all devices, nvidia.com/gpu: 2 of 8"},
		},
		"a type that the catalogue lacks is held against its launch": {
			change: func(s *readiness.Subject) {
				s.Claim.Labels[corev1.LabelInstanceTypeStable] = "p99.metal"
				s.Node.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("7")
			},
			want: readiness.Verdict{State: readiness.StatePending, Reason: "ResourcesMissing",
				Message: "the device plugin has not registered all devices, nvidia.com/gpu: 7 of 8"},
		},
		"a node without GPUs has nothing to verify": {
			change: func(s *readiness.Subject) {
				s.Claim.Labels[corev1.LabelInstanceTypeStable] = "m5.large"
				s.Node.Status.Conditions = nil
			},
			want: readiness.Verdict{State: readiness.StateNoGPU, Reason: "NoGPU", Message: "the node has no GPU"},
		},
		"the kubelet cannot pretend to be another type": {
			change: func(s *readiness.Subject) { s.Node.Labels[corev1.LabelInstanceTypeStable] = "m5.large" },
			want:   readiness.Verdict{State: readiness.StateVerified, Reason: "Verified", Message: "the GPUs are what was bought"},
		},
		"an older driver than the pool demands keeps the gate shut": {
			change: func(s *readiness.Subject) { s.Pool.GPUPool.Spec.Readiness.MinDriverVersion = "560" },
			want:   readiness.Verdict{State: readiness.StatePending, Reason: "DriverTooOld", Message: "DriverTooOld, want 560 or newer, got 550.54.15"},
		},
		"a check that the pool does without does not count": {
			change: func(s *readiness.Subject) {
				s.Pool.GPUPool.Spec.Readiness.MinDriverVersion = "560"
				s.Pool.GPUPool.Spec.Readiness.Checks = []v1alpha1.Check{{Name: v1alpha1.CheckDriverVersion, Severity: v1alpha1.SeverityWarning}}
			},
			want: readiness.Verdict{State: readiness.StateVerified, Reason: "Verified", Message: "the GPUs are what was bought"},
		},
		"a report of another agent's version says which is wrong": {
			change: func(s *readiness.Subject) { s.Node.Annotations[v1alpha1.ReportAnnotationKey] = `{"v":2,"boot":"x"}` },
			want: readiness.Verdict{State: readiness.StatePending, Reason: "ReportVersion",
				Message: "the GPU agent is of another version than the controller; upgrade both to the same"},
		},
		"words of the node are bounded and plain": {
			change: func(s *readiness.Subject) {
				report(s.Node, broken(h100s(boot), health.Unhealthy, health.ReportFinding{Check: health.CheckGPULost, Reason: health.GPULost, GPU: lo.ToPtr(1)}))
				condition(s.Node, corev1.NodeCondition{Type: v1alpha1.NodeConditionGPUReady, Status: corev1.ConditionFalse, Reason: "a reason\n", Message: "bell \a\x1b[2J"})
			},
			want: readiness.Verdict{State: readiness.StateFaulty, Reason: "Unknown", Message: "bell ??[2J"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := p5()
			if tc.change != nil {
				tc.change(&s)
			}
			if diff := cmp.Diff(tc.want, verifier.Verify(s)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// partitioned is a p5.48xlarge with a MIG layout; the report shows what mig-manager has made.
func partitioned(layout string, made ...health.Partition) readiness.Subject {
	s := p5()
	s.Claim.Labels[v1alpha1.LayoutLabelKey] = layout
	r := h100s(boot)
	for i := range r.GPUs {
		r.GPUs[i].MIG, r.GPUs[i].Partitions = len(made) > 0, made
	}
	report(s.Node, r)
	resources := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("0"), "nvidia.com/mig-3g.40gb": resource.MustParse("16")}
	s.Claim.Status.Capacity, s.Node.Status.Allocatable = resources, resources.DeepCopy()
	return s
}

func TestVerifyPartitions(t *testing.T) {
	two := []health.Partition{"3g.40gb@0+4", "3g.40gb@4+4"}
	for name, tc := range map[string]struct {
		subject readiness.Subject
		change  func(*readiness.Subject)
		want    string
	}{
		"the layout that was bought passes":              {subject: partitioned("all-3g.40gb", two...), want: "Verified"},
		"MIG off where partitions were bought does not":  {subject: partitioned("all-3g.40gb"), want: "PartitionsDiffer"},
		"one partition of two does not":                  {subject: partitioned("all-3g.40gb", two[0]), want: "PartitionsDiffer"},
		"other partitions than bought do not":            {subject: partitioned("all-3g.40gb", "4g.40gb@0+4"), want: "PartitionsDiffer"},
		"partitions where whole GPUs were bought do not": {subject: partitioned("", two...), want: "PartitionsDiffer"},
		"a layout that the pool has no more is known by name": {subject: partitioned("all-balanced", "1g.10gb@0+1", "1g.10gb@1+1", "2g.20gb@2+2", "3g.40gb@4+4"), want: "Verified",
			change: func(s *readiness.Subject) {
				s.Claim.Status.Capacity = corev1.ResourceList{"nvidia.com/mig-3g.40gb": resource.MustParse("8")}
				s.Node.Status.Allocatable = s.Claim.Status.Capacity.DeepCopy()
			}},
		"a layout of an unknown name is known by the launch's capacity": {subject: partitioned("ours-3g3g", two...), want: "Verified"},
		"and keeps the gate shut when it is not there":                  {subject: partitioned("ours-3g3g", two[0]), want: "PartitionsDiffer"},
		"whole GPUs on offer beside partitions do not pass": {subject: partitioned("all-3g.40gb", two...), want: "ResourcesForeign",
			change: func(s *readiness.Subject) { s.Node.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("8") }},
		"NVML is right and the plugin is late": {subject: partitioned("all-3g.40gb", two...), want: "ResourcesMissing",
			change: func(s *readiness.Subject) {
				s.Node.Status.Allocatable["nvidia.com/mig-3g.40gb"] = resource.MustParse("0")
			}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.change != nil {
				tc.change(&tc.subject)
			}
			if got := verifier.Verify(tc.subject); got.Reason != tc.want {
				t.Errorf("got %+v, want reason %s", got, tc.want)
			}
		})
	}
}

// TestVerifyObservedNames: boards that report 189 GB name their profiles differently from the
// catalogue, which knows those that report 186.
func TestVerifyObservedNames(t *testing.T) {
	for name, tc := range map[string]struct {
		made []health.Partition
		want string
	}{
		"the catalogue's names":                {[]health.Partition{"3g.93gb@0+4", "3g.93gb@4+4"}, "Verified"},
		"the board's own names":                {[]health.Partition{"3g.95gb@0+4", "3g.95gb@4+4"}, "Verified"},
		"other partitions under its own names": {[]health.Partition{"4g.95gb@0+4"}, "PartitionsDiffer"},
		"names of both":                        {[]health.Partition{"3g.93gb@0+4", "3g.95gb@4+4"}, "PartitionsDiffer"},
	} {
		t.Run(name, func(t *testing.T) {
			s := p5()
			s.Claim.Labels[corev1.LabelInstanceTypeStable] = "p6e-gb200.36xlarge"
			s.Claim.Labels[v1alpha1.LayoutLabelKey] = "all-3g.93gb"
			s.Claim.Status.Capacity = nil
			r := h100s(boot)
			r.GPUs, r.Known = r.GPUs[:4], 4
			for i := range r.GPUs {
				r.GPUs[i].Product, r.GPUs[i].MemoryMiB = "NVIDIA GB200", 0
				r.GPUs[i].MIG, r.GPUs[i].Partitions = true, tc.made
			}
			report(s.Node, r)
			if got := verifier.Verify(s); got.Reason != tc.want {
				t.Errorf("got %+v, want reason %s", got, tc.want)
			}
		})
	}
}

func xid(gpu, gi int) health.ReportFinding {
	f := health.ReportFinding{Check: health.CheckXID, Reason: health.XIDNeedsReboot, Action: health.ActionReboot, GPU: &gpu, XID: 95, Message: "XID 95"}
	if gi >= 0 {
		f.GI = &gi
	}
	return f
}

// held takes devices out of allocatable, as a device plugin does with those that are at fault.
func held(s *readiness.Subject, n int64) {
	name := corev1.ResourceName("nvidia.com/gpu")
	have := s.Node.Status.Allocatable[name]
	s.Node.Status.Allocatable[name] = *resource.NewQuantity(have.Value()-n, resource.DecimalSI)
}

func TestVerifyNodesAtWork(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*readiness.Subject)
		want   readiness.State
	}{
		"a sound node stays": {func(*readiness.Subject) {}, readiness.StateVerified},
		"a fault of a GPU fences": {func(s *readiness.Subject) {
			report(s.Node, broken(h100s(boot), health.Unhealthy, xid(3, -1)))
		}, readiness.StateFaulty},
		"a fault of one partition does not": {func(s *readiness.Subject) {
			held(s, 1)
			report(s.Node, broken(h100s(boot), health.Unhealthy, xid(3, 1)))
		}, readiness.StateDegraded},
		"a partition that the device plugin offers all the same fences": {func(s *readiness.Subject) {
			report(s.Node, broken(h100s(boot), health.Unhealthy, xid(3, 1)))
		}, readiness.StateFaulty},
		"two partitions of which it holds back one fence": {func(s *readiness.Subject) {
			held(s, 1)
			s.Pool.GPUPool.Spec.Health.MaxFencedPartitions = lo.ToPtr[int32](2)
			report(s.Node, broken(broken(h100s(boot), health.Unhealthy, xid(3, 1)), health.Unhealthy, xid(3, 2)))
		}, readiness.StateFaulty},
		"two partitions that it holds back do not where two may be": {func(s *readiness.Subject) {
			held(s, 2)
			s.Pool.GPUPool.Spec.Health.MaxFencedPartitions = lo.ToPtr[int32](2)
			report(s.Node, broken(broken(h100s(boot), health.Unhealthy, xid(3, 1)), health.Unhealthy, xid(3, 2)))
		}, readiness.StateDegraded},
		"one partition with two faults is one partition": {func(s *readiness.Subject) {
			second := xid(3, 1)
			second.XID = 46
			held(s, 1)
			report(s.Node, broken(broken(h100s(boot), health.Unhealthy, xid(3, 1)), health.Unhealthy, second))
		}, readiness.StateDegraded},
		"a second partition passes the default allowance": {func(s *readiness.Subject) {
			held(s, 2)
			report(s.Node, broken(broken(h100s(boot), health.Unhealthy, xid(3, 1)), health.Unhealthy, xid(4, 1)))
		}, readiness.StateFaulty},
		"an allowance of 0 fences at the first": {func(s *readiness.Subject) {
			held(s, 1)
			s.Pool.GPUPool.Spec.Health.MaxFencedPartitions = lo.ToPtr[int32](0)
			report(s.Node, broken(h100s(boot), health.Unhealthy, xid(3, 1)))
		}, readiness.StateFaulty},
		"a lost GPU beside a faulty partition fences": {func(s *readiness.Subject) {
			lost := health.ReportFinding{Check: health.CheckGPULost, Reason: health.GPULost, GPU: lo.ToPtr(2)}
			report(s.Node, broken(broken(h100s(boot), health.Unhealthy, xid(3, 1)), health.Unhealthy, lost))
		}, readiness.StateFaulty},
		"a reboot shuts the gate": {func(s *readiness.Subject) { s.Node.Status.NodeInfo.BootID = reboot }, readiness.StatePending},
		"a plugin that restarts does not fence": {func(s *readiness.Subject) {
			s.Node.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("0")
		}, readiness.StateVerified},
		"an agent that is gone does not fence": {func(s *readiness.Subject) {
			s.Node.Status.Conditions = nil
		}, readiness.StateVerified},
		"an agent of another version does not fence": {func(s *readiness.Subject) {
			s.Node.Annotations[v1alpha1.ReportAnnotationKey] = `{"v":2}`
		}, readiness.StateVerified},
		"a demand that was raised does not fence": {func(s *readiness.Subject) {
			s.Pool.GPUPool.Spec.Readiness.MinDriverVersion = "560"
		}, readiness.StateVerified},
		"partitions that somebody changed fence": {func(s *readiness.Subject) {
			r := h100s(boot)
			r.GPUs[0].MIG, r.GPUs[0].Partitions = true, []health.Partition{"7g.80gb@0+8"}
			report(s.Node, r)
		}, readiness.StateFaulty},
	} {
		t.Run(name, func(t *testing.T) {
			s := verified(p5())
			tc.change(&s)
			if got := verifier.Verify(s); got.State != tc.want {
				t.Errorf("got %+v, want %s", got, tc.want)
			}
		})
	}
}

func TestStateOf(t *testing.T) {
	s := p5()
	if got := readiness.StateOf(s.Node); got != readiness.StatePending {
		t.Errorf("a node in trial is %s", got)
	}
	verified(s)
	if got := readiness.StateOf(s.Node); got != readiness.StateVerified {
		t.Errorf("a verified node is %s", got)
	}
	readiness.Close(s.Node, t0)
	if got := readiness.StateOf(s.Node); got != readiness.StateFaulty {
		t.Errorf("a fenced node is %s", got)
	}
	s.Node.Status.NodeInfo.BootID = reboot
	if got := readiness.StateOf(s.Node); got != readiness.StatePending {
		t.Errorf("a rebooted node is %s", got)
	}
	old := p5()
	readiness.Open(old.Node)
	old.Node.Labels[karpv1.NodeInitializedLabelKey] = "true"
	if got := readiness.StateOf(old.Node); got != readiness.StateUnverified {
		t.Errorf("a node from before the gate is %s", got)
	}
}
