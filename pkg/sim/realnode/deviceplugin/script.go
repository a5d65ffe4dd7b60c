package deviceplugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Files of a plugin's directory.
const (
	scriptFile = "script.json"
	recordFile = "record.jsonl"
)

// Script says what the plugin does. Its zero value is a plugin that has found nothing yet.
type Script struct {
	// Delay is how long the plugin takes from its start to its registration.
	Delay Duration `json:"delay,omitempty"`
	// Resources are the devices by resource name, such as nvidia.com/gpu. One that goes away
	// goes as a plugin that is stopped does.
	Resources map[string][]Device `json:"resources,omitempty"`
}

// Device is one device of a resource.
type Device struct {
	ID        string `json:"id"`
	Unhealthy bool   `json:"unhealthy,omitempty"`
}

// Duration is a time.Duration that JSON shows as text, such as 30s.
type Duration time.Duration

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON implements json.Unmarshaler.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	parsed, err := time.ParseDuration(text)
	*d = Duration(parsed)
	return err
}

// Write puts a script into a plugin's directory, whole or not at all.
func (s Script) Write(dir string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding a device plugin's script, %w", err)
	}
	next := filepath.Join(dir, scriptFile+".next")
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return fmt.Errorf("writing a device plugin's script, %w", err)
	}
	if err := os.Rename(next, filepath.Join(dir, scriptFile)); err != nil {
		return fmt.Errorf("writing a device plugin's script, %w", err)
	}
	return nil
}

// read returns the script; a directory without one has the zero Script.
func read(dir string) (s Script, err error) {
	data, err := os.ReadFile(filepath.Join(dir, scriptFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("reading the script, %w", err)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("reading the script, %w", err)
	}
	return s, nil
}

// Entry is one line of the record.
type Entry struct {
	Time     time.Time `json:"time"`
	Event    string    `json:"event"`
	Resource string    `json:"resource"`
	Devices  []string  `json:"devices,omitempty"`
}

// Events of the record.
const (
	// Registered: the kubelet took the registration.
	Registered = "registered"
	// Allocated: the kubelet is about to start a container with these devices.
	Allocated = "allocated"
)

// Record returns what a plugin has recorded in its directory, oldest first.
func Record(dir string) ([]Entry, error) {
	file, err := os.Open(filepath.Join(dir, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the device plugin's record, %w", err)
	}
	defer file.Close()
	var entries []Entry
	for decoder := json.NewDecoder(file); decoder.More(); {
		var e Entry
		if err := decoder.Decode(&e); err != nil {
			return entries, fmt.Errorf("reading the device plugin's record, %w", err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}
