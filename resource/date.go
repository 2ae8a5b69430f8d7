package resource

import "time"

// Clients break ties by the time of creation: of two competing objects, istiod prefers the older one. So that time has
// to be the same in all replicas, independent of their start and the order of events. It is the object's own if it has
// one. An object without one has a rank instead: a time after all objects of earlier sources, in seconds of the years
// up to 2004, before there were objects to configure. Objects of another tributary have a rank already, by the order of
// its sources; it becomes the lower digits of the new one, so that this order stays within ours. There is room for
// three tiers, and for a thousand sources in each.
//
// A ServiceEntry with a time of its own has a rank, too: for one host, the order of sources decides before any time, so
// that no registry displaces a host of an earlier source. Its own time, in seconds from datesBegin to 2046, is in the
// nanoseconds of the rank.
const (
	digitBits = 10
	rankBits  = 3 * digitBits
	lastPlace = 1<<digitBits - 1

	datesBegin = 1_400_000_000 // May 2014, when Kubernetes was published
)

var lastRank = time.Unix(1<<rankBits-1, 0)

// Ranked returns r with its rank as an object of the source at a place in the order of sources, from 0; r itself, if it
// has a time of its own and is no ServiceEntry, or has no time and is of the first source.
func (r *Resource) Ranked(place int) *Resource {
	created := r.created
	switch {
	case bare(r.key.Kind):
		return r
	case created.ranks() || created == (instant{}):
	case r.key.Kind == ServiceEntry:
		created = instant{nanos: int32(min(max(created.seconds-datesBegin, 1), 1e9-1))} //nolint:gosec // bounded
	default:
		return r
	}
	rank := instant{
		seconds: int64(min(place, lastPlace))<<(rankBits-digitBits) | created.seconds>>digitBits,
		nanos:   created.nanos,
	}
	if rank == r.created {
		return r
	}
	return r.WithCreated(rank.time())
}

// Rank is the order of precedence, for clients, of objects without a time of their own: the lower first. It is 0 for
// objects with a time.
func (r *Resource) Rank() int {
	if !r.created.ranks() {
		return 0
	}
	return int(r.created.seconds)
}

// Own is the object's own time of creation, or zero.
func (r *Resource) Own() time.Time {
	switch {
	case r.created.ranks() && r.created.nanos > 0:
		return time.Unix(datesBegin+int64(r.created.nanos), 0).UTC()
	case r.created.ranks():
		return time.Time{}
	}
	return r.Created()
}

// Unranked returns r with no time of creation but its own.
func (r *Resource) Unranked() *Resource {
	if !r.created.ranks() {
		return r
	}
	return r.WithCreated(r.Own())
}

// bare reports whether objects of kind are sent without metadata.
func bare(kind Kind) bool {
	schema, ok := schemaByKind[kind]
	return ok && schema.Bare
}

// instant is a time in less space than time.Time needs. The zero value is none, and also the beginning of 1970, which
// istiod sends for objects that it knows no time of.
type instant struct {
	seconds int64
	nanos   int32
}

func instantOf(moment time.Time) instant {
	if moment.IsZero() {
		return instant{}
	}
	return instant{moment.Unix(), int32(moment.Nanosecond())} //nolint:gosec // below 10⁹
}

func (i instant) time() time.Time {
	if i == (instant{}) {
		return time.Time{}
	}
	return time.Unix(i.seconds, int64(i.nanos)).UTC()
}

// nanosOf returns a time in nanoseconds after 1970; 0 if it is zero.
func nanosOf(moment time.Time) int64 {
	if moment.IsZero() {
		return 0
	}
	return moment.UnixNano()
}

// ranks reports whether the instant is a rank.
func (i instant) ranks() bool { return i != (instant{}) && i.seconds >= 0 && i.seconds < 1<<rankBits }
