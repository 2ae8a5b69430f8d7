package xds

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var errKicked = status.Error(codes.Unavailable, "an operator ended the stream: reconnect")

// Kick ends the streams of a node, with a status that makes the client reconnect. It returns the number of streams.
func (s *Server) Kick(nodeID string) (count int) {
	for _, stream := range s.streamList() {
		if stream.status().Node.GetId() == nodeID {
			count += s.end(errKicked, stream)
		}
	}
	return count
}

// end ends those of the streams that go on, each with a status, and returns their number.
func (s *Server) end(reason error, streams ...*stream) (count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stream := range streams {
		if s.streams[stream.id] != nil { // each ends once
			delete(s.streams, stream.id)
			stream.drained = reason
			close(stream.drain)
			count++
		}
	}
	return count
}
