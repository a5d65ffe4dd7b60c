package aws

import (
	"bytes"
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

// root is the outermost element of an answer.
func root(name, xmlns string) xml.StartElement {
	out := xml.StartElement{Name: xml.Name{Local: name}}
	if xmlns != "" {
		out.Attr = []xml.Attr{{Name: xml.Name{Local: "xmlns"}, Value: xmlns}}
	}
	return out
}

func writeXML(w http.ResponseWriter, status int, start xml.StartElement, body any) {
	buffer := bytes.NewBufferString(xml.Header)
	if err := xml.NewEncoder(buffer).EncodeElement(body, start); err != nil {
		http.Error(w, fmt.Sprintf("encoding the answer, %s", err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	w.WriteHeader(status)
	_, _ = buffer.WriteTo(w)
}

func readAll(r *http.Request) ([]byte, error) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the request, %w", err)
	}
	return raw, nil
}
