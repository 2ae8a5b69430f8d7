package xds

import "net"

// Lobby returns lis with the connections of those who have said something. Who has not is kept without a goroutine, of which thousands would have everybody wait
// for a processor and for garbage to be collected, until limits.handshakeTimeout; on Linux. Elsewhere it returns lis, and the handshake waits.
func (s *Server) Lobby(lis net.Listener) net.Listener { return newLobby(lis, s) }
