package aws

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
)

// Spot costs between these parts of the on-demand price.
const (
	spotFloor = 0.30
	spotCeil  = 0.55
)

// SpotPrice is the simulator's spot price in USD per hour of a type in a zone: the
// on-demand price times 0.30 to 0.55, the part being drawn from a hash of type and
// zone, so that it never changes and zones differ; rounded to 1/10000 USD.
func SpotPrice(onDemand float64, instanceType, zone string) float64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s/%s", instanceType, zone)
	// FNV's low bits mix better than its high ones on short names.
	part := float64(h.Sum64()%1000) / 1000
	return math.Round(onDemand*(spotFloor+(spotCeil-spotFloor)*part)*1e4) / 1e4
}

// price is what an instance of a pool costs per hour.
func (s *Server) price(instanceType, zone, capacityType string) float64 {
	onDemand := s.types[instanceType].PricePerHour
	if capacityType != Spot {
		return onDemand
	}
	if price, ok := s.opts.SpotPrices[instanceType+"/"+zone]; ok {
		return price
	}
	return SpotPrice(onDemand, instanceType, zone)
}

type spotPriceXML struct {
	Type    string `xml:"instanceType"`
	Product string `xml:"productDescription"`
	Price   string `xml:"spotPrice"`
	Time    string `xml:"timestamp"`
	Zone    string `xml:"availabilityZone"`
	ZoneID  string `xml:"availabilityZoneId"`
}

type describeSpotPriceHistoryResponse struct {
	envelope
	Prices    []spotPriceXML `xml:"spotPriceHistorySet>item"`
	NextToken string         `xml:"nextToken"`
}

func (s *Server) describeSpotPriceHistory(p *params) (sealer, error) {
	types, zone, products := p.strings("InstanceType"), p.str("AvailabilityZone"), p.strings("ProductDescription")
	var items []spotPriceXML
	for _, t := range sortedValues(s.types) {
		for _, z := range s.opts.Zones {
			if len(types) > 0 && !slices.Contains(types, t.Name) || zone != "" && z != zone || !s.offered(t.Name, z) {
				continue
			}
			items = append(items, spotPriceXML{Type: t.Name, Product: "Linux/UNIX", Zone: z, ZoneID: zoneID(s.opts.Region, z),
				Price: strconv.FormatFloat(s.price(t.Name, z, Spot), 'f', 6, 64), Time: timestamp(s.st.StartedAt)})
		}
	}
	if len(products) > 0 && !slices.Contains(products, "Linux/UNIX") {
		items = nil
	}
	items, err := filtered(p, items, fields(func(i spotPriceXML) map[string]string {
		return map[string]string{"instance-type": i.Type, "availability-zone": i.Zone, "product-description": i.Product}
	}))
	if err != nil {
		return nil, err
	}
	items, next, err := page(p, items)
	return &describeSpotPriceHistoryResponse{Prices: items, NextToken: next}, err
}

type productsRequest struct {
	Filters []struct {
		Field string `json:"Field"`
		Value string `json:"Value"`
	} `json:"Filters"`
	MaxResults int    `json:"MaxResults"`
	NextToken  string `json:"NextToken"`
}

// getProducts answers the Pricing service: one product for each type, bare metal apart.
func (s *Server) getProducts(_ context.Context, body []byte) (any, error) {
	in := productsRequest{}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, newError("SerializationException", "%s", err)
	}
	metal, instanceType := false, ""
	for _, f := range in.Filters {
		switch f.Field {
		case "productFamily":
			metal = f.Value == "Compute Instance (bare metal)"
		case "instanceType":
			instanceType = f.Value
		}
	}
	var list []string
	for _, t := range sortedValues(s.types) {
		if t.BareMetal == metal && matchOr(instanceType, t.Name) {
			list = append(list, product(t))
		}
	}
	list, next, err := cut(list, in.NextToken, in.MaxResults)
	out := map[string]any{"FormatVersion": "aws_v1", "PriceList": list}
	if next != "" {
		out["NextToken"] = next
	}
	return out, err
}

// product is a price list entry: a JSON document inside a string.
func product(t InstanceType) string {
	sku := hash17("sku/" + t.Name)
	raw, err := json.Marshal(map[string]any{
		"product": map[string]any{"sku": sku, "attributes": map[string]any{"instanceType": t.Name}},
		"terms": map[string]any{"OnDemand": map[string]any{sku + ".OD": map[string]any{
			"priceDimensions": map[string]any{sku + ".OD.HRS": map[string]any{
				"unit":         "Hrs",
				"pricePerUnit": map[string]any{"USD": strconv.FormatFloat(t.PricePerHour, 'f', 10, 64)},
			}},
		}}},
	})
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return string(raw)
}
