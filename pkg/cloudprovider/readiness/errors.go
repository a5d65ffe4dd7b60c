package readiness

import (
	"errors"
	"fmt"
)

// HeldBackError is a launch that is held back during a storm. It comes wrapped in Karpenter's
// InsufficientCapacityError, and is no fault of an offering.
type HeldBackError struct {
	Pool, Reason   string
	InTrial, Limit int
}

// Error implements error.
func (e *HeldBackError) Error() string {
	return fmt.Sprintf("new nodes of gpu pool %s fail verification (%s), and %d of at most %d are in trial; see its condition VerificationHealthy",
		e.Pool, e.Reason, e.InTrial, e.Limit)
}

// IsHeldBack reports whether a launch was held back during a storm.
func IsHeldBack(err error) bool {
	var held *HeldBackError
	return errors.As(err, &held)
}
