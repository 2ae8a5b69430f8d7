package resource

import "go.yaml.in/yaml/v3"

// arena hands out nodes and lists of nodes, and the same ones again after a reset: all of a document's nodes are garbage
// as soon as it is decoded, and would be most of what there is to collect at a start.
type arena struct {
	nodes slab[yaml.Node]
	lists slab[*yaml.Node]
}

// node returns a node whose content is whatever it had before.
func (a *arena) node() *yaml.Node { return &a.nodes.take(1)[0] }

// list returns a copy of nodes.
func (a *arena) list(nodes []*yaml.Node) []*yaml.Node {
	list := a.lists.take(len(nodes))
	copy(list, nodes)
	return list
}

func (a *arena) reset() {
	a.nodes.reset()
	a.lists.reset()
}

// slab hands out slices. It keeps one block of them; what does not fit is from further ones.
type slab[T any] struct {
	block []T
	used  int
}

// The sizes of blocks: that of the first one, and that of the largest one that is kept.
const (
	firstBlock = 256
	keptBlock  = 16 << 10
)

func (s *slab[T]) take(n int) []T {
	if s.used+n > len(s.block) {
		s.block = make([]T, max(n, firstBlock, 2*len(s.block)))
		s.used = 0
	}
	taken := s.block[s.used : s.used+n : s.used+n]
	s.used += n
	return taken
}

func (s *slab[T]) reset() {
	s.used = 0
	if len(s.block) > keptBlock {
		s.block = nil
	}
}
