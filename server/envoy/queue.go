package envoy

import "container/heap"

// queued can be in one queue: in the order of before, and at is where, or -1.
type queued[T any] interface {
	before(other T) bool
	at() *int
}

// queue has first who is before all others.
type queue[T queued[T]] []T

// place has one be in the queue, or not, after its order has changed.
func (q *queue[T]) place(one T, in bool) {
	switch at := *one.at(); {
	case in && at < 0:
		heap.Push(q, one)
	case in:
		heap.Fix(q, at)
	case at >= 0:
		heap.Remove(q, at)
	}
}

// Len implements heap.Interface.
func (q *queue[T]) Len() int { return len(*q) }

// Less implements heap.Interface.
func (q *queue[T]) Less(i, j int) bool { return (*q)[i].before((*q)[j]) }

// Swap implements heap.Interface.
func (q *queue[T]) Swap(i, j int) {
	(*q)[i], (*q)[j] = (*q)[j], (*q)[i]
	*(*q)[i].at(), *(*q)[j].at() = i, j
}

// Push implements heap.Interface.
func (q *queue[T]) Push(one any) {
	t := one.(T) //nolint:forcetypeassert // place has it
	*t.at() = len(*q)
	*q = append(*q, t)
}

// Pop implements heap.Interface.
func (q *queue[T]) Pop() any {
	last := len(*q) - 1
	one := (*q)[last]
	var none T
	(*q)[last] = none
	*q = (*q)[:last]
	*one.at() = -1
	return one
}

// while yields, in no order, all of which is is true, which is true of whoever is before one of whom it is.
func (q queue[T]) while(is func(T) bool, yield func(T)) {
	for next := []int{0}; len(next) > 0; {
		i := next[len(next)-1]
		if next = next[:len(next)-1]; i < len(q) && is(q[i]) {
			yield(q[i])
			next = append(next, 2*i+1, 2*i+2)
		}
	}
}
