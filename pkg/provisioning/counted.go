package provisioning

import (
	"sync/atomic"
	"time"
)

// counted is when the last round began whose placement of capacity buffers the cluster state
// has. Whoever wants to know whether a node holds a buffer needs a round that began after the
// node was there to hold one: before the first, and for a node that was launched for a buffer
// until the next, the cluster state says that it holds none.
type counted struct{ began atomic.Pointer[time.Time] }

func (c *counted) note(began time.Time) { c.began.Store(&began) }

// BuffersCounted is when the last round began after which the cluster state knew which nodes
// hold capacity buffers; zero if none has, as always while the feature gate CapacityBuffer is
// off.
func (p *Provisioner) BuffersCounted() time.Time {
	if began := p.counted.began.Load(); began != nil {
		return *began
	}
	return time.Time{}
}
