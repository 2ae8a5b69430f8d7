package xds

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var errKicked = status.Error(codes.Unavailable, "an operator ended the stream: reconnect")

// Kick ends the streams of a node, with a status that makes the client reconnect. It returns the number of streams.
func (s *Server) Kick(nodeID string) (count int) {
	for _, stream := range s.streamList() {
		if stream.status().Node.GetId() != nodeID {
			continue
		}
		s.mu.Lock()
		if _, running := s.streams[stream.id]; running { // Drain and Kick close its channel once
			delete(s.streams, stream.id)
			stream.kicked.Store(true)
			close(stream.drain)
			count++
		}
		s.mu.Unlock()
	}
	return count
}

// drained returns the status of a stream that Drain or Kick ends.
func (st *stream) drained() error {
	if st.kicked.Load() {
		return errKicked
	}
	return errDraining
}
