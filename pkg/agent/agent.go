package agent

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

// Names of what the agent publishes: the values of pkg/apis, which is not imported
// since it would make the agent larger. A test compares them.
const (
	// ConditionType is the Node condition of the agent.
	ConditionType = "karpenter-gpu.dev/GPUReady"
	// ReportAnnotation holds the encoded health.Report.
	ReportAnnotation = "karpenter-gpu.dev/report"
	// PolicyAnnotation holds what the node's pool demands, for health.ParsePolicy. The
	// controller writes it.
	PolicyAnnotation = "karpenter-gpu.dev/policy"
)

// Status values of a Condition, as Kubernetes spells them.
const (
	StatusTrue    = "True"
	StatusFalse   = "False"
	StatusUnknown = "Unknown"
)

// Condition is the Node condition of the agent.
type Condition struct {
	Status, Reason, Message string
	LastTransition          time.Time
	LastHeartbeat           time.Time
}

// Carried is what the agent's own Node carries for it; nil for what is not there.
type Carried struct {
	Report, Policy []byte
}

// Publisher writes to the agent's own Node.
type Publisher interface {
	// Load returns what the Node carries now.
	Load(ctx context.Context) (Carried, error)
	// PublishReport writes the annotation.
	PublishReport(ctx context.Context, report []byte) error
	// PublishCondition writes the condition and returns what the Node carries, so that a
	// lost report and a new policy are noticed without another request.
	PublishCondition(ctx context.Context, c Condition) (Carried, error)
}

// Defaults of Options.
const (
	DefaultInterval      = time.Minute
	DefaultStartInterval = 5 * time.Second
	DefaultHeartbeat     = 5 * time.Minute
	// minGap is the least time between two rounds, and between two writes that
	// change neither status nor reason: an XID storm is counted, not published
	// one by one.
	minRound = time.Second
	minGap   = 10 * time.Second
	// lookAgain is how often a node that is not ready, and so writes nothing, asks for the
	// policy of its pool.
	lookAgain = 30 * time.Second
)

// Options are the agent's settings. Zero values mean the defaults.
type Options struct {
	// NodeName spreads the heartbeats of many nodes.
	NodeName string
	// Policy is what holds without, and under, the policy that the Node carries.
	Policy health.Policy
	// Interval is the time between samples of a ready node, StartInterval of one
	// that is not.
	Interval, StartInterval time.Duration
	// Heartbeat is the mean time between writes when nothing changes.
	Heartbeat time.Duration
}

// Agent samples, judges and publishes.
type Agent struct {
	sampler   *Sampler
	listener  *listener
	publisher Publisher
	clock     clock.Clock
	opts      Options

	memory health.Memory
	// policy is the options' with that of the Node on top, which carried holds as read.
	policy  health.Policy
	carried string
	// loaded says that the memory of an earlier agent was looked for, and lookedAt when the
	// Node was read last.
	loaded    bool
	lookedAt  time.Time
	published published
}

// published is what the Node is known to carry.
type published struct {
	report    []byte
	condition Condition
	at        time.Time
}

// New returns an Agent. The library must be the sampler's.
func New(sampler *Sampler, publisher Publisher, clk clock.Clock, opts Options) *Agent {
	set := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	set(&opts.Interval, DefaultInterval)
	set(&opts.StartInterval, DefaultStartInterval)
	set(&opts.Heartbeat, DefaultHeartbeat)
	return &Agent{
		sampler: sampler, listener: newListener(sampler.lib, clk), publisher: publisher, clock: clk, opts: opts, policy: opts.Policy,
	}
}

// Run works until the context ends, then shuts the library down.
func (a *Agent) Run(ctx context.Context) error {
	go a.listener.run(ctx)
	for {
		pause := a.Round(ctx)
		select {
		case <-ctx.Done():
			return a.close(ctx)
		case <-a.clock.After(minRound):
		}
		select {
		case <-ctx.Done():
			return a.close(ctx)
		case <-a.listener.wake:
		case <-a.clock.After(pause - minRound):
		}
	}
}

// close shuts down within one deadline of its own: the context has ended.
func (a *Agent) close(ctx context.Context) error {
	if err := a.sampler.Close(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("shutting down nvml, %w", err)
	}
	return nil
}

// Round samples, judges and publishes once and returns the time until the next
// round. What could not be published is tried again then.
func (a *Agent) Round(ctx context.Context) time.Duration {
	log := logr.FromContextOrDiscard(ctx)
	if err := a.load(ctx); err != nil {
		log.Error(err, "loading the published report")
		return a.opts.StartInterval
	}
	sample := a.sampler.Sample(ctx, a.policy)
	if ctx.Err() != nil {
		return 0 // a sample that was cut short says nothing about the node
	}
	sample.XIDs = a.listener.take()
	before := a.memory.State
	verdict, memory := health.Judge(sample, a.policy, a.memory, a.clock.Now())
	a.memory = memory
	if verdict.State != before {
		log.Info("gpu state changed", "state", verdict.State, "reason", verdict.Reason, "message", verdict.Message)
	}
	if err := a.publish(ctx, health.NewReport(sample, verdict, memory), verdict); err != nil {
		log.Error(err, "publishing")
		return a.opts.StartInterval
	}
	if verdict.State != health.Ready {
		return a.opts.StartInterval
	}
	return a.opts.Interval
}

// load takes over the memory of an agent that ran before in this boot. Until the
// API server answers nothing is judged: nothing could be published either, and the
// listener keeps the events. Later it only looks for a policy now and then.
func (a *Agent) load(ctx context.Context) error {
	if a.loaded && (a.memory.State == health.Ready || a.clock.Since(a.lookedAt) < lookAgain) {
		return nil
	}
	carried, err := a.publisher.Load(ctx)
	if err != nil {
		if a.loaded {
			return nil
		}
		return err
	}
	a.lookedAt = a.clock.Now()
	a.adopt(ctx, carried.Policy)
	if a.loaded {
		return nil
	}
	a.loaded = true
	if len(carried.Report) == 0 {
		return nil
	}
	report, err := health.Decode(carried.Report)
	if err != nil {
		// Somebody else wrote it, or another version did: start afresh.
		logr.FromContextOrDiscard(ctx).Info("ignoring the published report", "error", err.Error())
		return nil
	}
	a.memory = report.Memory(a.clock.Now())
	return nil
}

// adopt puts the policy that the Node carries on top of the agent's own. One that cannot
// be read changes nothing.
func (a *Agent) adopt(ctx context.Context, carried []byte) {
	if string(carried) == a.carried {
		return
	}
	a.carried = string(carried)
	policy, err := health.ParsePolicy(carried)
	if err != nil {
		logr.FromContextOrDiscard(ctx).Info("ignoring the policy of the node", "error", err.Error())
		return
	}
	a.policy = a.opts.Policy.With(policy)
}

// due reports whether to write: a turn of the condition at once, any other change not
// more often than minGap allows, and nothing new with the heartbeat.
func (a *Agent) due(condition Condition, report []byte) bool {
	last := a.published
	if condition.Status != last.condition.Status || condition.Reason != last.condition.Reason {
		return true
	}
	age := a.clock.Since(last.at)
	if condition.Message != last.condition.Message || !bytes.Equal(report, last.report) {
		return age >= minGap
	}
	return age >= max(minGap, a.heartbeat())
}

// publish writes what changed, the report first: whoever sees the condition finds
// the report that belongs to it.
func (a *Agent) publish(ctx context.Context, report health.Report, v health.Verdict) error {
	data, err := health.Encode(report)
	if err != nil {
		return err
	}
	condition := conditionOf(v, a.clock.Now())
	if !a.due(condition, data) {
		return nil
	}
	if !bytes.Equal(data, a.published.report) {
		if err := a.publisher.PublishReport(ctx, data); err != nil {
			return err
		}
	}
	there, err := a.publisher.PublishCondition(ctx, condition)
	if err != nil {
		return err
	}
	a.adopt(ctx, there.Policy)
	if !bytes.Equal(there.Report, data) {
		if err := a.publisher.PublishReport(ctx, data); err != nil {
			return err
		}
	}
	a.published = published{report: data, condition: condition, at: a.clock.Now()}
	return nil
}

// heartbeat is the mean plus or minus a fifth, by a hash of the node's name: nodes
// that started together do not write together.
func (a *Agent) heartbeat() time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(a.opts.NodeName)) // never fails
	share := float64(h.Sum32()%1000)/1000*0.4 + 0.8
	return time.Duration(float64(a.opts.Heartbeat) * share)
}

// maxConditionMessage bounds the message of the condition.
const maxConditionMessage = 1024

func conditionOf(v health.Verdict, now time.Time) Condition {
	status := map[health.State]string{
		health.Ready: StatusTrue, health.Unhealthy: StatusFalse, health.Starting: StatusUnknown,
	}[v.State]
	message := v.Message
	if len(message) > maxConditionMessage {
		message = message[:maxConditionMessage]
	}
	return Condition{Status: status, Reason: string(v.Reason), Message: message, LastTransition: v.Since, LastHeartbeat: now}
}

// Once takes one sample, without the API server, and judges it.
func Once(ctx context.Context, s *Sampler, p health.Policy, m health.Memory, now time.Time) (health.Report, health.Verdict, health.Memory) {
	sample := s.Sample(ctx, p)
	verdict, memory := health.Judge(sample, p, m, now)
	return health.NewReport(sample, verdict, memory), verdict, memory
}
