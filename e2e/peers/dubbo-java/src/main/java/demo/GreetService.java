package demo;

public interface GreetService {
    String greet(String name);
}
