package catalog

// Corrected returns the built-in catalogue with the overrides of a YAML document: what
// --gpu-catalog-file names. The error lists every problem, each with the field, its
// value and the way out.
func Corrected(data []byte) (*Catalog, error) {
	overrides, err := Parse(data)
	if err != nil {
		return nil, err
	}
	return Default().With(overrides)
}
