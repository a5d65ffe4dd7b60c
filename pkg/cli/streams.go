package cli

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Streams are where commands read and write.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// colors says whether Out is a terminal that shows colors.
func (s Streams) colors() bool {
	f, ok := s.Out.(*os.File)
	_, off := os.LookupEnv("NO_COLOR")
	return ok && !off && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}
