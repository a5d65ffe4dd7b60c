//go:build linux

package node_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// measureAgent tells how long the agent took to start and what memory it has.
func (w *world) measureAgent(t *testing.T) {
	t.Helper()
	p, err := w.agentProcess(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	started, err := processStart(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	first, verdict, err := w.agentTimes(t)
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
	if err != nil {
		t.Fatal(err)
	}
	memory := map[string]string{}
	for _, line := range strings.Split(string(status), "\n") {
		if key, value, ok := strings.Cut(line, ":"); ok {
			memory[key] = strings.TrimSpace(value)
		}
	}
	t.Logf("measured: the agent's process to its first line %s, to its verdict %s; memory %s resident (%s of it its own), peak %s",
		seconds(first.Sub(started)), seconds(verdict.Sub(started)), memory["VmRSS"], memory["RssAnon"], memory["VmHWM"])
}

// agentTimes reads when the agent said that it started, and when it first called the node ready.
func (w *world) agentTimes(t *testing.T) (started, verdict time.Time, err error) {
	t.Helper()
	for _, line := range strings.Split(w.agentLog(t), "\n") {
		// The runtime puts time, stream and a flag before each line.
		fields := strings.SplitN(line, " ", 4)
		if len(fields) < 4 {
			continue
		}
		var entry struct {
			Time  time.Time `json:"time"`
			Msg   string    `json:"msg"`
			State string    `json:"state"`
		}
		if json.Unmarshal([]byte(fields[3]), &entry) != nil {
			continue
		}
		switch {
		case entry.Msg == "started" && started.IsZero():
			started = entry.Time
		case entry.State == "Ready" && verdict.IsZero():
			verdict = entry.Time
		}
	}
	if started.IsZero() || verdict.IsZero() {
		err = fmt.Errorf("the agent's log tells of no start or no verdict")
	}
	return started, verdict, err
}

// processStart is when the kernel started a process, to a hundredth of a second.
func processStart(pid int) (time.Time, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return time.Time{}, err
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return time.Time{}, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	ticks, err := strconv.ParseInt(fields[19], 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return time.Time{}, err
	}
	up, err := strconv.ParseFloat(strings.Fields(string(uptime))[0], 64)
	if err != nil {
		return time.Time{}, err
	}
	age := time.Duration(up*float64(time.Second)) - time.Duration(ticks)*10*time.Millisecond
	return time.Now().Add(-age), nil
}
