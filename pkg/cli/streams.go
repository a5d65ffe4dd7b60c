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

// colours says whether Out is a terminal that shows colours.
func (s Streams) colours() bool {
	f, ok := s.Out.(*os.File)
	_, off := os.LookupEnv("NO_COLOR")
	return ok && !off && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}
