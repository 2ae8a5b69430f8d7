package judge

// Other reports whether what is now is another cluster than what was before; empty is what is not known.
func Other(before, now string) bool { return before != "" && now != "" && before != now }

// Made says when things were created: CreateIndex by name. A thing that is changed keeps it; one that is deleted and made
// again has a new one, higher than all indexes before. So it tells a Consul that went on from one that began anew.
type Made map[string]uint64

// Compare adds to c how those of now that were there before were created; index is that of the answer believed then.
func (m Made) Compare(now Made, index uint64, c *Compared) {
	for name, was := range m {
		is, there := now[name]
		switch {
		case !there || was == 0 || is == 0:
		case is == was:
			c.Kept++
		default:
			c.Remade++
			c.Rewritten = c.Rewritten || index > 0 && is <= index
		}
	}
}
