package aws

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// params is a query-protocol request as a tree: the key A.1.B is at("A.1.B"), and
// list() walks numbered children in order. A nil *params is an absent parameter.
type params struct {
	value string
	kids  map[string]*params
}

func parseParams(form url.Values) *params {
	root := &params{}
	for key, values := range form {
		n := root
		for _, part := range strings.Split(key, ".") {
			if n.kids == nil {
				n.kids = map[string]*params{}
			}
			if n.kids[part] == nil {
				n.kids[part] = &params{}
			}
			n = n.kids[part]
		}
		n.value = values[0]
	}
	return root
}

func (p *params) at(path string) *params {
	for _, part := range strings.Split(path, ".") {
		if p == nil {
			return nil
		}
		p = p.kids[part]
	}
	return p
}

func (p *params) str(path string) string {
	if n := p.at(path); n != nil {
		return n.value
	}
	return ""
}

func (p *params) bool(path string) bool { return p.str(path) == "true" }

func (p *params) int(path string, fallback int) int {
	if n, err := strconv.Atoi(p.str(path)); err == nil {
		return n
	}
	return fallback
}

func (p *params) float(path string) float64 {
	f, _ := strconv.ParseFloat(p.str(path), 64)
	return f
}

// list returns the numbered children of path, lowest number first.
func (p *params) list(path string) []*params {
	n := p.at(path)
	if n == nil {
		return nil
	}
	var indexes []int
	for key := range n.kids {
		if i, err := strconv.Atoi(key); err == nil {
			indexes = append(indexes, i)
		}
	}
	slices.Sort(indexes)
	out := make([]*params, 0, len(indexes))
	for _, i := range indexes {
		out = append(out, n.kids[strconv.Itoa(i)])
	}
	return out
}

func (p *params) strings(path string) []string {
	var out []string
	for _, n := range p.list(path) {
		out = append(out, n.value)
	}
	return out
}

// tags reads Tag.N.Key and Tag.N.Value.
func (p *params) tags(path string) map[string]string {
	out := map[string]string{}
	for _, tag := range p.list(path) {
		out[tag.str("Key")] = tag.str("Value")
	}
	return out
}

// tagsFor reads the tags of the TagSpecification for one kind of resource.
func (p *params) tagsFor(resource string) map[string]string {
	for _, spec := range p.list("TagSpecification") {
		if spec.str("ResourceType") == resource {
			return spec.tags("Tag")
		}
	}
	return map[string]string{}
}

// glob matches EC2's filter patterns: * is any text, ? is one character.
func glob(pattern, value string) bool {
	star, mark := -1, 0
	p, v := 0, 0
	for v < len(value) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, v
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == value[v]):
			p, v = p+1, v+1
		case star >= 0:
			mark++
			p, v = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// timestamp is how EC2 and EventBridge write times.
func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
