package rbac

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Policy is kube-apiserver's audit policy: each call of the controller and of the agents, without
// its content, and nobody else's.
const Policy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    users: ["` + userPrefix + Controller + `", "` + userPrefix + Agent + `"]
  - level: None
`

const userPrefix = "system:serviceaccount:" + Namespace + ":"

// The authorizer's answer, as kube-apiserver annotates it.
const (
	decisionKey = "authorization.k8s.io/decision"
	forbidden   = "forbid"
)

// Usage is what an audit log tells.
type Usage struct {
	// Denied are the different calls that were refused, sorted, each with how often.
	Denied []string `json:"denied,omitempty"`
	// Used are the grants that allowed a call, sorted, as Grant.String writes them.
	Used []string `json:"used,omitempty"`
}

// call is an entry of the audit log, as far as it is read.
type call struct {
	URI  string `json:"requestURI"`
	Verb string `json:"verb"`
	User struct {
		Name string `json:"username"`
	} `json:"user"`
	Ref struct {
		Group       string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Response struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
	Annotations map[string]string `json:"annotations"`

	account string
}

func (c call) group() string { return c.Ref.Group }

func (c call) resource() string {
	if c.Ref.Subresource == "" {
		return c.Ref.Resource
	}
	return c.Ref.Resource + "/" + c.Ref.Subresource
}

// refused reports whether RBAC or, for the agent, its admission policy said no. The policy answers
// with 422, which the agent has no other way to get: it sends conditions and an annotation.
func (c call) refused() bool {
	return c.Annotations[decisionKey] == forbidden || c.Response.Code == http.StatusForbidden ||
		c.account == Agent && c.Response.Code == http.StatusUnprocessableEntity
}

// String is what a reader needs to find the call and the rule that it lacks.
func (c call) String() string {
	if c.Ref.Resource == "" {
		return fmt.Sprintf("%s: %s %s", c.account, c.Verb, c.URI)
	}
	// A name says little, and would list the same lack once for each node.
	return Grant{Account: c.account, Verb: c.Verb, Group: c.group(), Resource: c.resource(), In: c.Ref.Namespace}.String()
}

// Read reads an audit log in JSON lines.
func Read(log io.Reader, grants []Grant) (Usage, error) {
	used, denied := map[string]bool{}, map[string]int{}
	for decoder := json.NewDecoder(log); ; {
		var c call
		err := decoder.Decode(&c)
		if errors.Is(err, io.EOF) {
			return usage(used, denied), nil
		}
		if err != nil {
			return Usage{}, fmt.Errorf("reading the audit log, %w", err)
		}
		account, ok := strings.CutPrefix(c.User.Name, userPrefix)
		if !ok {
			continue
		}
		c.account = account
		if c.refused() {
			denied[c.denial()]++
			continue
		}
		for _, g := range grants {
			if g.allows(c) || c.creates() && g.allows(c.as("create")) {
				used[g.String()] = true
			}
		}
	}
}

// creates reports whether a patch made its object, as server-side apply does: the API server then
// asks for the right to create as well, and tells of the patch alone.
func (c call) creates() bool { return c.Verb == "patch" && c.Response.Code == http.StatusCreated }

func (c call) as(verb string) call {
	c.Verb = verb
	return c
}

// denial adds the reason where it is not RBAC's, which says no more than the call itself.
func (c call) denial() string {
	if c.Annotations[decisionKey] == forbidden || c.Response.Message == "" {
		return c.String()
	}
	return c.String() + " (" + c.Response.Message + ")"
}

func usage(used map[string]bool, denied map[string]int) Usage {
	u := Usage{Used: slices.Sorted(maps.Keys(used))}
	for _, d := range slices.Sorted(maps.Keys(denied)) {
		u.Denied = append(u.Denied, fmt.Sprintf("%s, %d times", d, denied[d]))
	}
	return u
}
