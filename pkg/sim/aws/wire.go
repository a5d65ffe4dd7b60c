package aws

import (
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
)

type ec2ErrorItem struct {
	Code    string `xml:"Code"`
	Message string `xml:"Message"`
}

type ec2Error struct {
	XMLName   xml.Name       `xml:"Response"`
	Errors    []ec2ErrorItem `xml:"Errors>Error"`
	RequestID string         `xml:"RequestID"`
}

// tag is how every query service writes a tag; EC2's names are lower case.
type tag struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

func tagSet(tags map[string]string) []tag {
	out := make([]tag, 0, len(tags))
	for _, key := range sortedKeys(tags) {
		out = append(out, tag{Key: key, Value: tags[key]})
	}
	return out
}

func writeXML(w http.ResponseWriter, status int, body any) {
	raw, err := xml.Marshal(body)
	if err != nil {
		http.Error(w, fmt.Sprintf("encoding the answer, %s", err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, xml.Header)
	_, _ = w.Write(raw)
}

func readAll(r *http.Request) ([]byte, error) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the request, %w", err)
	}
	return raw, nil
}
