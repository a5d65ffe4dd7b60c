package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
)

// limit is what the AWS provider knows of the network of one type.
type limit struct {
	enis, ipv4 int
	hypervisor string
	bareMetal  bool
}

// upstream holds the generated tables of the AWS provider, read from source.
type upstream struct {
	limits    map[string]limit
	bandwidth map[string]int
	efa       map[string]int
	prices    map[string]string
}

func readUpstream(dir string) (*upstream, error) {
	p := filepath.Join(dir, "pkg", "providers")
	up := &upstream{limits: map[string]limit{}, bandwidth: map[string]int{}, efa: map[string]int{}, prices: map[string]string{}}
	for _, t := range []struct {
		file, variable string
		read           func(string, ast.Expr)
	}{
		{filepath.Join(p, "instancetype", "zz_generated.vpclimits.go"), "Limits", func(k string, v ast.Expr) { up.limits[k] = asLimit(v) }},
		{filepath.Join(p, "instancetype", "zz_generated.bandwidth.go"), "InstanceTypeBandwidthMegabits", func(k string, v ast.Expr) { up.bandwidth[k] = asInt(v) }},
		{filepath.Join(p, "drametadata", "zz_generated_efa_metadata.go"), "EFAMetadataByInstanceType", func(k string, v ast.Expr) { up.efa[k] = asInt(fields(v)["Count"]) }},
		{filepath.Join(p, "pricing", "zz_generated.pricing_aws.go"), "InitialOnDemandPricesAWS", func(k string, v ast.Expr) {
			if k == "us-east-1" {
				each(v, func(name string, price ast.Expr) { up.prices[name] = asText(price) })
			}
		}},
	} {
		if err := readTable(t.file, t.variable, t.read); err != nil {
			return nil, err
		}
	}
	return up, nil
}

// readTable calls read for every entry of the map literal in the named variable.
func readTable(file, variable string, read func(string, ast.Expr)) error {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		return fmt.Errorf("parsing %s, %w", filepath.Base(file), err)
	}
	found := false
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != variable || len(spec.Values) != 1 {
			return true
		}
		found = true
		each(spec.Values[0], read)
		return false
	})
	if !found {
		return fmt.Errorf("%s declares no variable %s", filepath.Base(file), variable)
	}
	return nil
}

// each calls read for every key that is a string literal.
func each(e ast.Expr, read func(string, ast.Expr)) {
	lit, ok := literal(e)
	if !ok {
		return
	}
	for _, el := range lit.Elts {
		if kv, ok := el.(*ast.KeyValueExpr); ok {
			read(asText(kv.Key), kv.Value)
		}
	}
}

func literal(e ast.Expr) (*ast.CompositeLit, bool) {
	if u, ok := e.(*ast.UnaryExpr); ok {
		e = u.X
	}
	lit, ok := e.(*ast.CompositeLit)
	return lit, ok
}

func fields(e ast.Expr) map[string]ast.Expr {
	out := map[string]ast.Expr{}
	each(e, func(k string, v ast.Expr) { out[k] = v })
	return out
}

// asText is a literal without quotes, or the name of an identifier.
func asText(e ast.Expr) string {
	switch v := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(v.Value); err == nil {
			return s
		}
		return v.Value
	case *ast.Ident:
		return v.Name
	}
	return ""
}

func asInt(e ast.Expr) int {
	n, _ := strconv.Atoi(asText(e))
	return n
}

func asLimit(e ast.Expr) limit {
	f := fields(e)
	return limit{
		enis: asInt(f["Interface"]), ipv4: asInt(f["IPv4PerInterface"]),
		hypervisor: asText(f["Hypervisor"]), bareMetal: asText(f["IsBareMetal"]) == "true",
	}
}

// readPublished reads the list of ec2instances.info.
func readPublished(path string) (map[string]row, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []struct {
		Name    string   `json:"instance_type"`
		VCPU    int      `json:"vCPU"`
		Memory  float64  `json:"memory"`
		Arch    []string `json:"arch"`
		Storage *struct {
			Devices int    `json:"devices"`
			Size    int    `json:"size"`
			Unit    string `json:"size_unit"`
			NVMe    bool   `json:"nvme_ssd"`
		} `json:"storage"`
	}
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("decoding %s, %w", filepath.Base(path), err)
	}
	out := map[string]row{}
	for _, t := range all {
		r := row{name: t.Name, vcpu: t.VCPU, memoryMiB: int(t.Memory * 1024), arch: "amd64"}
		for _, a := range t.Arch {
			if a == "arm64" {
				r.arch = "arm64"
			}
		}
		if t.Storage != nil && t.Storage.NVMe && t.Storage.Unit == "GB" {
			r.nvmeGB = t.Storage.Devices * t.Storage.Size
		}
		out[t.Name] = r
	}
	return out, nil
}
