package resource

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// The limits of one text. They are far above texts that people and programs write. The memory and time of a text is in
// proportion to its length.
const (
	defaultMaxBytes = 64 << 20
	maxObjects      = 1 << 18 // documents, lists and their items together
	maxProblems     = 20      // reported of one document
	maxDepth        = 200     // of nesting in a document; Istio's own types go no deeper than 20
	maxLists        = 3       // of lists within lists
	maxMerges       = 32      // of nested merge keys: each costs as much as all that it merges

	// The limit of nodes behind aliases, in the unit of budget.spend: a number, and a multiple of the length of the text.
	maxAliased      = 4 << 20
	aliasedPerByte  = 8
	costOfAnObject  = 1 << 10 // reached through an alias
	costOfANode     = 32
	costOfAnElement = 16
)

var (
	errTooDeep   = fmt.Errorf("nested deeper than %d levels", maxDepth)
	errAliased   = errors.New("aliases (*name) stand for too much")
	errObjects   = fmt.Errorf("more than %d objects in one text", maxObjects)
	errTooMerged = fmt.Errorf("merge keys (<<) within merge keys, more than %d deep", maxMerges)
	errTooNested = errors.New("lists within lists within lists")
)

// budget is the remaining cost of one text. Aliases let a short text stand for an endless one, so that all nodes behind
// them count, with their approximate memory. The goroutines that decode the text share it.
type budget struct {
	maxAliased int64
	objects    atomic.Int64
	aliased    atomic.Int64
}

func newBudget(text []byte) *budget {
	return &budget{maxAliased: maxAliased + aliasedPerByte*int64(len(text))}
}

// countObject counts one more object of the text and of the current part, and returns the number in the text.
func (f *file) countObject() int64 {
	f.objects++
	return f.budget.objects.Add(1)
}

// spend counts a node behind an alias, and reports whether the budget allows it. It notes the alias: its nodes may
// count for more another time.
func (f *file) spend(cost int) bool {
	f.aliased = true
	return f.budget.aliased.Add(int64(cost)) <= f.budget.maxAliased
}

// exceeded reports whether the budget refused a part of the text because of the cost of the others.
func (b *budget) exceeded() bool {
	return b.objects.Load() > maxObjects || b.aliased.Load() > b.maxAliased
}
