package guest

// Command is a program to run in the machine.
type Command struct {
	Args []string `json:"args"`
}

// Result is how a Command ended.
type Result struct {
	// Code is the exit status, 128 plus the signal where one ended it.
	Code   int    `json:"code"`
	Output string `json:"output"`
}

// Status is how a service does.
type Status struct {
	Name string `json:"name"`
	// PID is the machine's process ID, 0 while it does not run.
	PID int `json:"pid"`
	// Starts counts since boot.
	Starts int `json:"starts"`
}
