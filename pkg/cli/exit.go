package cli

import "errors"

// Exit codes.
const (
	// ExitOK: all went well.
	ExitOK = 0
	// ExitUnmet: the command worked and its answer is a no: a pod has no node, doctor found
	// errors, or convert could not carry all over.
	ExitUnmet = 1
	// ExitError: flags or input are wrong, or the work could not be done.
	ExitError = 2
)

// errUnmet ends a verb whose answer is printed and is a no.
var errUnmet = errors.New("the answer is no")

// IsUnmet says whether the error is only a no that has been printed already.
func IsUnmet(err error) bool { return errors.Is(err, errUnmet) }

// ExitCode is the exit code for what a command returned.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return ExitOK
	case IsUnmet(err):
		return ExitUnmet
	}
	return ExitError
}
