package xds

import (
	"cmp"
	"iter"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// ClientStatus is the status of one stream.
type ClientStatus struct {
	StreamID  uint64
	Node      *corev3.Node // nil before the first request
	Peer      string
	Identity  string // that the client has proven; empty if none
	Connected time.Time
	Delta     bool
	Types     []TypeStatus
}

// TypeStatus is the status of one type on one stream. Times are zero, and strings empty, before the first event of
// their kind.
type TypeStatus struct {
	TypeURL    string // as the client asked for it
	Collection *Collection
	Wildcard   bool
	Names      int // subscribed by name
	// Synced says that the client has the newest version: it acknowledged it, or resumed with it.
	Synced bool

	SentVersion, SentNonce   string
	SentAt                   time.Time
	AckedVersion, AckedNonce string
	AckedAt                  time.Time
	NackNonce, NackError     string // of the last rejection
	NackAt                   time.Time
	Rejected                 []Rejection // in order of name
	Responses, Nacks         uint64
}

// Rejects reports whether the client rejected the last response, or a resource that it did not acknowledge since.
func (t *TypeStatus) Rejects() bool {
	return len(t.Rejected) > 0 || t.NackNonce != "" && t.NackNonce == t.SentNonce
}

// Streams returns the number of streams that Drain did not end.
func (s *Server) Streams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// Clients returns the status of every stream, in order of arrival, that Drain did not end. With many clients use
// EachClient.
func (s *Server) Clients() []ClientStatus {
	return slices.AppendSeq([]ClientStatus{}, s.EachClient())
}

// EachClient yields the status of every stream, in order of arrival, that Drain did not end. It takes each status just
// before it yields it, and also yields streams that end meanwhile.
func (s *Server) EachClient() iter.Seq[ClientStatus] {
	streams := s.streamList()
	slices.SortFunc(streams, func(a, b *stream) int { return cmp.Compare(a.id, b.id) })
	return func(yield func(ClientStatus) bool) {
		for _, st := range streams {
			if !yield(st.status()) {
				return
			}
		}
	}
}

// streamList returns the streams that Drain and Kick did not end.
func (s *Server) streamList() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	streams := make([]*stream, 0, len(s.streams))
	for _, st := range s.streams {
		streams = append(streams, st)
	}
	return streams
}

func (s *stream) status() ClientStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	clientStatus := ClientStatus{
		StreamID: s.id, Node: s.node, Peer: s.peer, Identity: s.identity, Connected: s.connected,
		Delta: s.delta,
	}
	outdated := s.outdated()
	for _, sub := range s.subs {
		t := sub.status
		t.Collection = sub.coll
		t.Wildcard = sub.selection.wildcard
		t.Names = len(sub.selection.names)
		t.Synced = sub.synced() && !outdated
		t.Rejected = sub.rejections()
		clientStatus.Types = append(clientStatus.Types, t)
	}
	return clientStatus
}

// Served has the resources of a type that a client wants and was sent.
type Served struct {
	TypeURL string // as the client asked for it
	Version string
	Entries []*Entry // in order of name; they must not be modified
}

// Served returns the resources that the client of a stream was sent, in the order of ClientStatus.Types; nil if there
// is no such stream. It includes those on their way, and those that a resuming client already had.
func (s *Server) Served(streamID uint64) (served []Served) {
	for _, stream := range s.streamList() {
		if stream.id != streamID {
			continue
		}
		stream.mu.Lock()
		defer stream.mu.Unlock()
		for _, sub := range stream.subs {
			status := Served{TypeURL: sub.typeURL, Version: sub.client.state.version}
			for e := range sub.client.state.entries() {
				if sub.selection.includes(e.Name) && !sub.client.lacks(e.Name) {
					status.Entries = append(status.Entries, e)
				}
			}
			served = append(served, status)
		}
	}
	return served
}
