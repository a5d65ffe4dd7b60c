package aws

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

const (
	ec2Version = "2016-11-15"
	iamVersion = "2010-05-08"
	stsVersion = "2011-06-15"
)

// envelope is what every EC2 answer embeds.
type envelope struct {
	RequestID string `xml:"requestId"`
}

func (e *envelope) seal(requestID string) { e.RequestID = requestID }

type sealer interface{ seal(requestID string) }

// operation answers one call. It runs under the server's lock.
type operation func(s *Server, p *params) (sealer, error)

var ec2Operations = map[string]operation{
	"CreateFleet":                   (*Server).createFleet,
	"CreateLaunchTemplate":          (*Server).createLaunchTemplate,
	"CreateTags":                    (*Server).createTags,
	"DeleteLaunchTemplate":          (*Server).deleteLaunchTemplate,
	"DescribeAvailabilityZones":     (*Server).describeAvailabilityZones,
	"DescribeCapacityReservations":  (*Server).describeCapacityReservations,
	"DescribeImages":                (*Server).describeImages,
	"DescribeInstanceStatus":        (*Server).describeInstanceStatus,
	"DescribeInstanceTypeOfferings": (*Server).describeInstanceTypeOfferings,
	"DescribeInstanceTypes":         (*Server).describeInstanceTypes,
	"DescribeInstances":             (*Server).describeInstances,
	"DescribeLaunchTemplates":       (*Server).describeLaunchTemplates,
	"DescribePlacementGroups":       (*Server).describePlacementGroups,
	"DescribeSecurityGroups":        (*Server).describeSecurityGroups,
	"DescribeSpotPriceHistory":      (*Server).describeSpotPriceHistory,
	"DescribeSubnets":               (*Server).describeSubnets,
	"RebootInstances":               (*Server).rebootInstances,
	"RunInstances":                  (*Server).runInstances,
	"TerminateInstances":            (*Server).terminateInstances,
}

// jsonOperation answers one call of a JSON service.
type jsonOperation func(s *Server, ctx context.Context, body []byte) (any, error)

var jsonOperations = map[string]jsonOperation{
	"AmazonSSM.GetParameter":          (*Server).getParameter,
	"AWSPriceListService.GetProducts": (*Server).getProducts,
	"AmazonSQS.GetQueueUrl":           (*Server).getQueueURL,
	"AmazonSQS.ReceiveMessage":        (*Server).receiveMessage,
	"AmazonSQS.DeleteMessage":         (*Server).deleteMessage,
	"AmazonSQS.SendMessage":           (*Server).sendMessage,
}

// dispatch finds the service by the protocol that the SDK speaks to it: JSON services
// name their operation in a header, query services in the form.
func (s *Server) dispatch(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 8<<20)
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		s.dispatchJSON(w, r, target)
		return
	}
	if err := r.ParseForm(); err != nil {
		http.Error(w, "the body is not a form", http.StatusBadRequest)
		return
	}
	if r.Form.Get("Action") == "" {
		http.Error(w, fmt.Sprintf("%s %s is no call of a simulated service; the simulator's own interface is under /_sim/",
			r.Method, r.URL.Path), http.StatusNotFound)
		return
	}
	switch r.Form.Get("Version") {
	case iamVersion:
		s.dispatchIAM(w, r)
	case stsVersion:
		s.dispatchSTS(w, r)
	default:
		s.dispatchEC2(w, r)
	}
}

func (s *Server) dispatchEC2(w http.ResponseWriter, r *http.Request) {
	name, requestID := r.Form.Get("Action"), s.begin(r.Context())
	out, err := s.callEC2(name, r.Form)
	if err == nil && s.drops(name) {
		panic(http.ErrAbortHandler) // the call took effect, its answer is lost
	}
	if err != nil {
		api := s.failed(err)
		writeXML(w, api.status(), root("Response", ""), ec2Error{
			Errors:    []ec2ErrorItem{{Code: api.Code, Message: api.Message}},
			RequestID: requestID,
		})
		return
	}
	out.seal(requestID)
	writeXML(w, http.StatusOK, root(name+"Response", "http://ec2.amazonaws.com/doc/"+ec2Version+"/"), out)
}

func (s *Server) callEC2(name string, form url.Values) (out sealer, err error) {
	run, ok := ec2Operations[name]
	if !ok {
		return nil, s.unknown(name)
	}
	if err := s.count(name); err != nil {
		return nil, err
	}
	p := parseParams(form)
	if p.bool("DryRun") {
		return nil, newError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
	}
	if strings.HasPrefix(name, "Describe") {
		s.mu.Lock()
		defer s.mu.Unlock()
		return run(s, p)
	}
	err = s.update(func() error {
		out, err = run(s, p)
		return err
	})
	return out, err
}

func (s *Server) dispatchJSON(w http.ResponseWriter, r *http.Request, target string) {
	requestID := s.begin(r.Context())
	_, name, _ := strings.Cut(target, ".")
	out, err := s.callJSON(r, target, name)
	if err == nil && s.drops(name) {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("X-Amzn-RequestId", requestID)
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	if err != nil {
		api := s.failed(err)
		w.Header().Set("X-Amzn-ErrorType", api.Code)
		w.WriteHeader(api.status())
		out = map[string]string{"__type": api.Code, "message": api.Message}
	}
	_ = json.NewEncoder(w).Encode(out)
}

func (s *Server) callJSON(r *http.Request, target, name string) (any, error) {
	run, ok := jsonOperations[target]
	if !ok {
		return nil, s.unknown(target)
	}
	if err := s.count(name); err != nil {
		return nil, err
	}
	body, err := readAll(r)
	if err != nil {
		return nil, newError("SerializationException", "%s", err)
	}
	return run(s, r.Context(), body)
}

// begin numbers the request and holds it back for the configured latency.
func (s *Server) begin(ctx context.Context) string {
	s.mu.Lock()
	s.calls++
	n := s.calls
	s.mu.Unlock()
	if d := s.opts.APILatency.sample(s.opts.Seed^0xa91, n); d > 0 {
		select {
		case <-s.opts.Clock.After(d):
		case <-ctx.Done():
		}
	}
	h := hash17(fmt.Sprintf("request/%d/%d", s.opts.Seed, n)) + "000000000000000"
	return fmt.Sprintf("%s-%s-%s-%s-%s", h[:8], h[8:12], h[12:16], h[16:20], h[20:32])
}

// count counts a call and answers an injected error, if one is due.
func (s *Server) count(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.st.Calls[name]++
	if api := s.injected(name); api != nil {
		return api
	}
	return nil
}

func (s *Server) unknown(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.st.Calls[name]++
	s.st.Unknown[name]++
	return newError("InvalidAction", "The action %s is not valid for this web service.", name)
}

func (s *Server) failed(err error) *apiError {
	api := asAPIError(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.st.Errors[api.Code]++
	return api
}
