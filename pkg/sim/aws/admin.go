package aws

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// adminRoutes serves the simulator's own interface:
//
//	GET    /_sim/healthz
//	GET    /_sim/report                        POST with an Existing tells orphans
//	GET    /_sim/instances
//	POST   /_sim/instances/{id}/interrupt      also fail, reboot, terminate
//	GET    /_sim/faults                        POST a Fault, DELETE all (?kind=capacity)
//	DELETE /_sim/faults/{id}
//	POST   /_sim/reservations                  a Reservation
//	DELETE /_sim/reservations/{id}
func (s *Server) adminRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /_sim/healthz", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, map[string]bool{"ok": true}) })
	mux.HandleFunc("GET /_sim/report", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.Report(nil)) })
	mux.HandleFunc("POST /_sim/report", func(w http.ResponseWriter, r *http.Request) {
		var in Existing
		if readJSON(w, r, &in) {
			writeJSON(w, http.StatusOK, s.Report(&in))
		}
	})
	mux.HandleFunc("GET /_sim/instances", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.Instances()) })
	for verb, act := range map[string]func(string) error{"interrupt": s.Interrupt, "fail": s.Fail, "reboot": s.Reboot, "terminate": s.Terminate} {
		mux.HandleFunc("POST /_sim/instances/{id}/"+verb, func(w http.ResponseWriter, r *http.Request) {
			writeResult(w, map[string]string{"id": r.PathValue("id")}, act(r.PathValue("id")))
		})
	}
	mux.HandleFunc("GET /_sim/faults", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.Faults()) })
	mux.HandleFunc("POST /_sim/faults", func(w http.ResponseWriter, r *http.Request) {
		var in Fault
		if readJSON(w, r, &in) {
			id, err := s.AddFault(in)
			writeResult(w, map[string]string{"id": id}, err)
		}
	})
	mux.HandleFunc("DELETE /_sim/faults", func(w http.ResponseWriter, r *http.Request) {
		writeResult(w, map[string]string{}, s.ClearFaults(FaultKind(r.URL.Query().Get("kind"))))
	})
	mux.HandleFunc("DELETE /_sim/faults/{id}", func(w http.ResponseWriter, r *http.Request) {
		writeResult(w, map[string]string{}, s.ClearFault(r.PathValue("id")))
	})
	mux.HandleFunc("POST /_sim/reservations", func(w http.ResponseWriter, r *http.Request) {
		var in Reservation
		if readJSON(w, r, &in) {
			id, err := s.Reserve(in)
			writeResult(w, map[string]string{"id": id}, err)
		}
	})
	mux.HandleFunc("DELETE /_sim/reservations/{id}", func(w http.ResponseWriter, r *http.Request) {
		writeResult(w, map[string]string{}, s.CancelReservation(r.PathValue("id")))
	})
}

// readJSON reads one document; a field that does not exist is an error, not ignored.
func readJSON(w http.ResponseWriter, r *http.Request, into any) bool {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err == nil && !errors.Is(decoder.Decode(&struct{}{}), io.EOF) {
		err = errors.New("there is more than one document")
	}
	if err != nil {
		writeResult(w, nil, fmt.Errorf("reading the request, %w", err))
		return false
	}
	return true
}

func writeResult(w http.ResponseWriter, out any, err error) {
	if err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	writeJSON(w, http.StatusOK, out)
}

func writeJSON(w http.ResponseWriter, status int, out any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(out)
}
